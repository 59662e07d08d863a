// SPDX-License-Identifier: Apache-2.0
/* The service worker: the page works offline from the second visit on, and a new version waits for the user's word. */
import { signal } from '@preact/signals';
import { serviceWorker } from './parts.js';

/* A version that has been fetched and waits. */
export const waiting = signal(/** @type {ServiceWorker | null} */ (null));

/* The browser has no network: nothing changes but a word in the footer. */
export const isOffline = signal(false);

function watchNetwork() {
  const look = () => { isOffline.value = !navigator.onLine; };
  addEventListener('online', look);
  addEventListener('offline', look);
  look();
}

export async function workOffline() {
  if (SINGLE || !('serviceWorker' in navigator) || !location.protocol.startsWith('http')) return;
  watchNetwork();
  const hadOne = !!navigator.serviceWorker.controller;
  try {
    const registration = await serviceWorker();
    const look = () => { if (registration.waiting && navigator.serviceWorker.controller) waiting.value = registration.waiting; };
    look();
    registration.addEventListener('updatefound', () => {
      const fresh = registration.installing;
      fresh?.addEventListener('statechange', look);
    });
    navigator.serviceWorker.addEventListener('controllerchange', () => { if (hadOne && asked) location.reload(); });
  } catch { /* a host or a browser without them: the page works as it is */ }
}

let asked = false;

/** Takes the new version, in this tab. */
export function update() {
  asked = true;
  waiting.value?.postMessage('update');
}
