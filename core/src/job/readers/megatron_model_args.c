/* SPDX-License-Identifier: Apache-2.0 */
/* model_config.yaml of Megatron-LM's functional tests: the arguments of a program that the test's recipe names
 * (tests/functional_tests/shell_test_utils/_run_training.sh). */
#include <inttypes.h>
#include <string.h>

#include "base/units.h"
#include "job/readers/claims.h"
#include "job/readers/command_options.h"

/* As _run_training.sh puts it on the command line: "[one two]" is two words, and so are those of a list. */
static const char *command_words_of(tide_arena *arena, const tide_json *value) {
    if (value->kind == TIDE_JSON_STRING) {
        size_t length = value->text.length;
        bool is_list = length > 1 && value->text.at[0] == '[' && value->text.at[length - 1] == ']';
        if (!is_list || memchr(value->text.at, '*', length)) return tide_text_copy(arena, value->text);
        char *words = tide_text_copy(arena, (tide_text){value->text.at + 1, length - 2});
        for (char *at = words; *at; at++)
            if (*at == ' ') *at = ',';
        return words;
    }
    if (value->kind != TIDE_JSON_ARRAY) return tide_argument_value(arena, value);
    const char *words = "";
    for (const tide_json *item = value->first; item; item = item->next)
        words = tide_format(arena, "%s%s%s", words, *words ? "," : "", command_words_of(arena, item));
    return words;
}

static void read_model_args(tide_reading *r, tide_json *root) {
    const tide_json *arguments = tide_json_at(root, "MODEL_ARGS"), *mode = tide_json_at(root, "MODE");
    tide_json *options = tide_json_new(r->arena, TIDE_JSON_OBJECT);
    if (!tide_json_is(arguments, TIDE_JSON_OBJECT)) {
        tide_file_refuse(r, TIDE_ERR_FIELD_TYPE, "has no arguments in MODEL_ARGS", "give those of pretrain_gpt.py");
        return;
    }
    if (tide_json_is(mode, TIDE_JSON_STRING) && tide_text_is(mode->text, "inference")) {
        tide_file_refuse(r, TIDE_ERR_UNSUPPORTED, "generates, and trains nothing",
                         "give mode=infer with model=NAME, or mode=serve for a server");
        return;
    }
    for (const tide_json *entry = arguments->first; entry; entry = entry->next)
        if (entry->kind != TIDE_JSON_NULL)
            tide_option_put(r->arena, options, tide_flag_key(r->arena, entry->key.at, entry->key.length),
                            command_words_of(r->arena, entry));
    tide_report(r->diags, TIDE_ASSUMPTION, TIDE_OK, tide_format(r->arena, "%s/MODEL_ARGS", r->place),
                tide_format(r->arena, "%s does not name its program: pretrain_gpt.py", r->name),
                "give the command if it is another");
    tide_claims_add(r->claims, &tide_megatron_reader, options, r->name, r->place);
}

const tide_reader tide_megatron_model_args_reader = {
    .title = "a test of Megatron-LM", .marks = "MODEL_ARGS", .read = read_model_args};
