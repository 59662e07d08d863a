/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts (speculative_config), and calls of the runner's functions. Private to serve/. */
#ifndef TIDE_SERVE_DRAFTS_H
#define TIDE_SERVE_DRAFTS_H

#include "serve/serve.h"

/* Reads what proposes how many tokens, and the draft model's configuration. False after an error. */
bool tide_serve_read_drafts(tide_serve_run *run, const tide_json *given, tide_arena *arena, tide_diagnostics *diags);
/* The layers whose hidden states the target passes to EAGLE 3: a list of numbers. */
tide_value tide_serve_aux_layers(tide_serve_run *run);
/* Proposes after the target's pass of the profile run, from its inputs and outputs. */
void tide_serve_propose(tide_serve_run *run, tide_description *runner, const tide_value *inputs, tide_value hidden,
                        int64_t requests);

/* The most that later steps need in addition. */
uint64_t tide_serve_draft_steps(const tide_serve_run *run, int64_t requests);
/* The most that CUDA graphs of the draft model need besides the target's. */
uint64_t tide_serve_head_graphs(tide_serve_run *run);

/* Calls a function of the runner's description. The caller owns the result; arguments are borrowed. */
tide_value tide_serve_call_runner(tide_serve_run *run, tide_description *runner, const char *name,
                                  const tide_value *arguments, uint32_t count);
/* An item of a list, or none. */
tide_value tide_serve_item(tide_value list, uint32_t at);

#endif
