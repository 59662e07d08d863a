/* SPDX-License-Identifier: Apache-2.0 */
/* The description language: reading models/architectures/, binding descriptions to a configuration, and running them.
 *
 * A description says which keys of a configuration it reads, which modules there are, and statement by statement what
 * the forward() of each does (models/README.md). This folder reads descriptions (description.h), makes their modules
 * over a configuration and runs them on the machine of tensor/ (module.h); embedded_models.h has the built-in ones. It
 * knows neither jobs nor steps: settings come as values, and memos, hooks of wrappers and the places in messages are
 * functions supplied by the caller.
 *
 * In reading order: lexer.c and parser.c (statements to trees), inherit.c, class.c and description.c (files to
 * classes), bind.c (names to meanings), config_expressions.c and checks.c (sizes), expressions.c, index.c,
 * call_expressions.c, statements.c, arithmetic.c and builtins.c (evaluation), calls.c, checkpointed_calls.c and
 * autograd_function.c (calling functions and modules), construct.c, names.c and module.c (the model), unused.c (finding
 * what nothing uses). */
#ifndef TIDE_LANG_LANG_H
#define TIDE_LANG_LANG_H

#include "lang/description.h"
#include "lang/embedded_models.h"
#include "lang/module.h"

#endif
