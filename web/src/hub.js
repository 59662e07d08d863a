// SPDX-License-Identifier: Apache-2.0
/* A model's configuration from the Hugging Face Hub: the one thing that the page fetches from another host, and only when it is told to. */
import { readText } from './files.js';
import { HUB } from './hosts.js';

const FETCH_MS = 20000;
const MOST_BYTES = 4 * 1024 * 1024;

/** Whether a text is an id of the Hub: owner and name. @param {string} text */
export const isHubId = (text) => /^\s*[\w.-]{1,96}\/[\w.-]{1,96}\s*$/.test(text) && !text.includes('..');

/** @param {string} id @param {string} name @returns {Promise<Response>} */
const get = (id, name) => fetch(`${HUB}/${id}/resolve/main/${name}`, { credentials: 'omit', referrerPolicy: 'no-referrer', cache: 'no-store', signal: AbortSignal.timeout(FETCH_MS) });

/** @param {string} id @param {number} status */
function refused(id, status) {
  if (status === 401 || status === 403) return `${id} is gated or does not exist. With an account that may read it, save its config.json from ${HUB}/${id}/blob/main/config.json and drop it here.`;
  if (status === 404) return `${id} has no config.json on the Hub.`;
  return `${HUB} answered ${status}.`;
}

/** @typedef {Awaited<ReturnType<typeof readText>>} Read */

/** config.json of a model, and with a vision tower what prepares its images. @param {string} typed @returns {Promise<Read[]>} */
export async function fromHub(typed) {
  const id = typed.trim();
  try {
    const response = await get(id, 'config.json');
    if (!response.ok) return [{ problem: refused(id, response.status) }];
    const text = await response.text();
    if (text.length > MOST_BYTES) return [{ problem: `The config.json of ${id} is larger than 4 MB and was not read.` }];
    const read = [await readText('config.json', text)];
    if (!/"vision_config"\s*:/.test(text)) return read;
    const images = await get(id, 'preprocessor_config.json').catch(() => null);
    return images?.ok ? [...read, await readText('preprocessor_config.json', await images.text())] : read;
  } catch (error) {
    const why = error instanceof Error && error.name === 'TimeoutError' ? 'it did not answer within 20 seconds' : 'there is no connection, or something between forbids it';
    return [{ problem: `${HUB} could not be reached: ${why}. Drop the model’s config.json here instead.` }];
  }
}
