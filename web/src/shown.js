// SPDX-License-Identifier: Apache-2.0
/* The answer that the panels under What if are about: the last one, once the numbers are drawn. */
import { signal } from '@preact/signals';
import { inSight, later } from './later.js';
import { report } from './state.js';

export const shown = signal(report.peek());

later({ isSeen: () => inSight('whatif'), draw: (r) => { shown.value = r; } }, shown.peek());

/** What the job came to in a setting. @param {string} name */
export const shownValue = (name) => shown.value?.settings.find((setting) => setting.name === name)?.value ?? '';
