// SPDX-License-Identifier: Apache-2.0
/* Style that comes with a chunk: a sheet beside that of the page. */

/** @param {string} text */
export function addStyle(text) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
