/* SPDX-License-Identifier: Apache-2.0 */
/* The description language: models/architectures/ read, bound to a configuration, and run.
 *
 * A description says which keys of a configuration it reads, which modules there are, and what the forward() of each
 * does, statement by statement (models/README.md). This folder reads it (description.h), makes its modules over a
 * configuration, and runs them on the machine of tensor/ (module.h); which descriptions are built in says
 * embedded_models.h. It knows neither jobs nor steps: settings come as values, and reuse of calls, hooks of wrappers
 * and the places of messages by functions that the caller gives.
 *
 * In reading order: lexer.c and parser.c (statements to trees), inherit.c, class.c and description.c (files to
 * classes), bind.c (names to meanings), config_expressions.c and checks.c (sizes), expressions.c, index.c,
 * call_expressions.c, statements.c, arithmetic.c and builtins.c (evaluation), calls.c, checkpointed_calls.c and
 * autograd_function.c (functions and modules called), construct.c, names.c and module.c (the model), unused.c (what
 * nothing reads). */
#ifndef TIDE_LANG_LANG_H
#define TIDE_LANG_LANG_H

#include "lang/description.h"
#include "lang/embedded_models.h"
#include "lang/module.h"

#endif
