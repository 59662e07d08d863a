/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts (speculative_config), and calls of what the runner does. Private to serve/. */
#ifndef TIDE_SERVE_DRAFTS_H
#define TIDE_SERVE_DRAFTS_H

#include "serve/serve.h"

/* What proposes how many, and the draft model's configuration. False after an error. */
bool tide_serve_read_drafts(tide_serve_run *run, const tide_json *given, tide_arena *arena, tide_diagnostics *diags);
/* Layers behind which the target gives its hidden states to EAGLE 3: a list of numbers. */
tide_value tide_serve_aux_layers(tide_serve_run *run);
/* Proposes behind the target's pass of the profile run: what it ran on, and what it gave. */
void tide_serve_propose(tide_serve_run *run, tide_description *runner, const tide_value *inputs, tide_value hidden,
                        int64_t requests);

/* What the steps behind the first may take beside it, at most. */
uint64_t tide_serve_draft_steps(const tide_serve_run *run, int64_t requests);
/* What CUDA graphs of the draft model may take beside the target's, at most. */
uint64_t tide_serve_head_graphs(tide_serve_run *run);

/* A function of the runner's description. Results are owned by the caller; arguments are borrowed. */
tide_value tide_serve_call_runner(tide_serve_run *run, tide_description *runner, const char *name,
                                  const tide_value *arguments, uint32_t count);
/* An item of a list, or none. */
tide_value tide_serve_item(tide_value list, uint32_t at);

#endif
