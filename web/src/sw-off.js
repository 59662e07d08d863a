// SPDX-License-Identifier: Apache-2.0
/* Takes the service worker back: put this file in place of sw.js. Its caches go, and so does it; open pages stay as they are. */
const scope = /** @type {any} */ (globalThis);

scope.addEventListener('install', () => scope.skipWaiting());
scope.addEventListener('activate', (/** @type {any} */ event) => {
  const mine = `tidemark ${scope.registration.scope} `;
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter((name) => name.startsWith(mine)).map((name) => caches.delete(name))))
    .then(() => scope.registration.unregister()));
});

export {};
