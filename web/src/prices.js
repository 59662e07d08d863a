// SPDX-License-Identifier: Apache-2.0
/* What an hour of a GPU costs, as its user says; kept in this browser, in whatever currency it is. */
import { signal } from '@preact/signals';
import { keep, kept } from './storage.js';

/** @returns {Record<string, number>} */
function read() {
  try {
    const list = Object.entries(JSON.parse(kept('prices') ?? '{}'));
    return Object.assign(Object.create(null), Object.fromEntries(list.filter(([, price]) => typeof price === 'number' && price > 0)));
  } catch {
    return Object.create(null);
  }
}

/* By the GPU's name. */
export const prices = signal(read());

/** @param {string} gpu @param {string} typed */
export function setPrice(gpu, typed) {
  const price = Number(typed.replace(',', '.'));
  const rest = Object.entries(prices.value).filter(([name]) => name !== gpu);
  prices.value = Object.assign(Object.create(null), Object.fromEntries(price > 0 && Number.isFinite(price) ? [...rest, [gpu, price]] : rest));
  keep('prices', JSON.stringify(prices.value));
}
