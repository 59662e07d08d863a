// SPDX-License-Identifier: Apache-2.0
/* What is kept in this browser; nothing, where its storage is off. */

/** @param {string} name */
export function kept(name) {
  try {
    return localStorage.getItem(`tidemark.${name}`);
  } catch {
    return null;
  }
}

/** @param {string} name @param {string} value */
export function keep(name, value) {
  try {
    localStorage.setItem(`tidemark.${name}`, value);
  } catch { /* storage is off */ }
}
