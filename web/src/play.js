// SPDX-License-Identifier: Apache-2.0
/* The job and its baseline are played, and what came of it is shown. */
import { batch } from '@preact/signals';
import { opened, writeFragment } from './address.js';
import { ask, askAll, askAsIs, cancelled, giveWay } from './asking.js';
import { CoreStopped } from './client.js';
import { sentences } from './format.js';
import { awaited, baseline, baselineReport, core, coreProblem, failure, isConfirmed, linkedView, notices, placed, report, request, slow, verySlow, words } from './state.js';

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
    if (!reply.ok && opened.isNew && dropBadWord(reply.diagnostics ?? [])) return recompute();
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

/** A bad value in a link falls back to the default and is named, so that a link always lands on an answer.
 * @param {Diagnostic[]} diagnostics @returns {boolean} whether a word was dropped */
function dropBadWord(diagnostics) {
  const error = diagnostics.find((d) => d.severity === 'error');
  const bad = error && words.value.find(([name]) => name !== 'model' && placed(error, name));
  if (!error || !bad) return false;
  batch(() => {
    words.value = words.value.filter((word) => word !== bad);
    notices.value = [...notices.value, `${bad[0]}=${bad[1].slice(0, 60)} in this link was not taken: ${sentences(error).said}`];
  });
  return true;
}

export async function playBaseline() {
  const of = baseline.value;
  if (!of) return;
  const reply = await ask('estimate', {}, of, 'baseline');
  if (baseline.value === of && reply?.ok) baselineReport.value = reply;
}
