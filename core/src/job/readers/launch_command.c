/* SPDX-License-Identifier: Apache-2.0 */
/* The first command of a script that starts training. */
#include "job/readers/launch_command.h"

#include "base/units.h"
#include "job/readers/shell_branches.h"

static const char *script_of(const tide_command_line *l) {
    for (uint32_t i = 0; i < l->count; i++)
        if (tide_text_ends(tide_text_of(l->tokens[i]), TIDE_TEXT(".py"))) return l->tokens[i];
    return NULL;
}

static void refuse_script(tide_reading *r, const char *script) {
    const char *shown = tide_shown(r->arena, tide_text_of(script));
    tide_file_refuse(r, TIDE_ERR_MODEL_UNKNOWN,
                     tide_format(r->arena, "runs %s: what it trains is in its code, not in its options", shown),
                     tide_format(r->arena,
                                 "give model=NAME and its settings, or run `tidemark dry-run -- python %s` with its"
                                 " options",
                                 shown));
}

static void warn_of_branches(const tide_reading *r, uint32_t line) {
    tide_report(r->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, r->place,
                tide_format(r->arena,
                            "%s has options in branches of `if` that the script itself does not decide (line %u): all "
                            "of them are read",
                            r->name, (unsigned)line),
                "take out the branches that do not run");
}

bool tide_launch_read_script(tide_reading *r) {
    tide_text text = tide_trimmed(r->text);
    tide_command_line l = {.arena = r->arena};
    const char *script = NULL;
    if (!text.length || text.length > TIDE_SHELL_SCRIPT_LIMIT || text.at[0] == '{' || text.at[0] == '[') return false;
    uint32_t open;
    text = tide_shell_take_branches(r->arena, text, &open);
    const tide_shell_variable *variables = tide_shell_variables(r->arena, text);
    for (int i = 0; i < 2; i++) { /* variables may themselves be computed */
        text = tide_shell_compute(r->arena, text, variables);
        variables = tide_shell_variables(r->arena, text);
    }
    for (size_t at = 0; at < text.length;) {
        tide_shell_read(&l, text, &at);
        tide_shell_expand(&l, variables);
        if (tide_launched_program_read(r, &l, variables)) {
            if (open) warn_of_branches(r, open);
            return true;
        }
        if (!script && tide_runs_known(&l)) script = script_of(&l);
    }
    if (script) refuse_script(r, script);
    return script != NULL;
}
