// SPDX-License-Identifier: Apache-2.0
/* The job and its baseline are played, and what came of it is shown. */
import { batch } from '@preact/signals';
import { opened, writeFragment } from './address.js';
import { ask, askAll, askAsIs, cancelled, giveWay } from './asking.js';
import { CoreStopped } from './client.js';
import { awaited, baseline, baselineReport, core, coreProblem, failure, isConfirmed, linkedView, report, request, slow, verySlow } from './state.js';

/** @typedef {import('./types.js').Diagnostic} Diagnostic */

/** @type {ReturnType<typeof setTimeout> | undefined} */
let slowTimer;

/** @type {AbortController | undefined} */
let rest;

export async function recompute() {
  awaited.value = true;
  giveWay(true);
  slowTimer ??= setTimeout(() => {
    slow.value = true;
    slowTimer = setTimeout(() => { verySlow.value = true; }, 850);
  }, 150);
  try {
    const asked = { ...request(), ...(opened.isNew && opened.was && { was: opened.was }) };
    rest?.abort();
    const reply = await askAsIs({ ...asked, brief: true }, 'estimate');
    if (reply === null) return; /* a newer job is on its way */
    const isSame = opened.isNew && opened.was !== '' && reply.ok && !reply.diagnostics.some((/** @type {Diagnostic} */ d) => d.place === '/link');
    if (opened.isNew) playBaseline();
    opened.isNew = false;
    batch(() => {
      answered();
      core.value = 'ready';
      if (reply.ok) report.value = reply;
      isConfirmed.value = isSame;
      failure.value = reply.ok ? null : reply.diagnostics ?? [];
    });
    linkedView.value = opened.view;
    opened.view = null;
    const isBare = reply.verdict?.fits && (reply.verdict.margin_bytes ?? 0) < 0; /* by retries: on how small a device still? */
    if (reply.brief || isBare) askRest({ ...asked, ...(isBare && { options: true }) }, reply);
  } catch (error) {
    batch(() => {
      answered();
      if (cancelled.is) {
        cancelled.is = false;
        failure.value = [{ severity: 'warning', code: '', message: 'Cancelled.', remedy: 'Change a setting to calculate again.' }];
      } else if (error instanceof CoreStopped) {
        failure.value = [{ severity: 'error', code: 'ERR_STOPPED', message: `The calculation stopped unexpectedly: ${error.message}`,
          remedy: 'Your settings are safe in the address bar. Change one of them, or reload the page.' }];
      } else {
        core.value = 'lost';
        coreProblem.value = String(error instanceof Error ? error.message : error);
      }
    });
  }
  writeFragment();
}

/** What of an answer took other jobs to be played, once nothing newer is asked.
 * @param {object} asked @param {import('./types.js').Report} brief what is shown of it */
async function askRest(asked, brief) {
  rest = new AbortController();
  await askAll([asked], (reply) => { if (reply?.ok && report.value === brief) report.value = reply; }, rest.signal);
}

function answered() {
  clearTimeout(slowTimer);
  slowTimer = undefined;
  giveWay(false);
  awaited.value = slow.value = verySlow.value = false;
}

export async function playBaseline() {
  const of = baseline.value;
  if (!of) return;
  const reply = await ask('estimate', {}, of, 'baseline');
  if (baseline.value === of && reply?.ok) baselineReport.value = reply;
}
