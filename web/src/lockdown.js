// SPDX-License-Identifier: Apache-2.0
/* The worker gives up every way to reach a network before anything else runs: the page's policy does not bind a
 * worker on hosts that send no headers. */

const NAMES = ['fetch', 'XMLHttpRequest', 'WebSocket', 'WebSocketStream', 'WebTransport', 'EventSource',
  'importScripts', 'indexedDB', 'caches', 'Worker', 'SharedWorker', 'BroadcastChannel', 'RTCPeerConnection'];

/** @param {any} scope the worker's global object */
export function lockdown(scope) {
  for (let holder = scope; holder && holder !== Object.prototype; holder = Object.getPrototypeOf(holder)) {
    for (const name of NAMES) if (Object.hasOwn(holder, name)) delete holder[name];
  }
  for (const name of NAMES) Object.defineProperty(scope, name, { value: undefined });
}
