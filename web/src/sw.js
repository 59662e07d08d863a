// SPDX-License-Identifier: Apache-2.0
/* The service worker: one version of the page, kept whole. The page itself comes from the network where that answers within two
 * seconds; what it is made of has names that change with the content and comes from the cache. Nothing goes to another origin but what the page
 * fetches from the Hub when it is told to (hub.js), which is not kept. */
import { HUB } from './hosts.js';

const scope = /** @type {any} */ (globalThis);
const CACHE = `tidemark ${scope.registration.scope} ${SW_VERSION}`;
const NETWORK_MS = 2000;

scope.addEventListener('install', (/** @type {any} */ event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(SW_FILES)));
});

/* It takes over when no page of the version before is open, or the user asks for it. */
scope.addEventListener('message', (/** @type {any} */ { data }) => {
  if (data === 'update') scope.skipWaiting();
});

scope.addEventListener('activate', (/** @type {any} */ event) => {
  const mine = `tidemark ${scope.registration.scope} `;
  event.waitUntil(caches.keys()
    .then((names) => Promise.all(names.filter((name) => name.startsWith(mine) && name !== CACHE).map((name) => caches.delete(name))))
    .then(() => scope.clients.claim()));
});

/** @param {Request} request */
async function page(request) {
  const cache = await caches.open(CACHE);
  const kept = () => cache.match(request, { ignoreSearch: true }).then((found) => found ?? cache.match('./'));
  const limit = new Promise((done) => { setTimeout(() => done(null), NETWORK_MS); });
  const fetched = fetch(request).catch(() => null);
  const answer = await Promise.race([fetched, limit]);
  return (answer?.ok && answer) || (await kept()) || (await fetched) || Response.error();
}

/** @param {Request} request */
const asset = async (request) => (await (await caches.open(CACHE)).match(request)) ?? fetch(request);

scope.addEventListener('fetch', (/** @type {any} */ event) => {
  const { request } = event;
  const { origin } = new URL(request.url);
  if (origin === HUB) return;
  if (origin !== location.origin) event.respondWith(Response.error());
  else if (request.method === 'GET') event.respondWith(request.mode === 'navigate' ? page(request) : asset(request));
});

export {};
