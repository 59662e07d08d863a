/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the memory of a device into PyTorch's segments, other libraries, context, modules and the rest, and gives a
 * verdict. */
#define _GNU_SOURCE
#include "../native/estimate.h"
#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* The allocator of PyTorch is in this library. */
static const char pytorch[] = "libc10_cuda";

typedef struct row {
    char name[64];
    int64_t predicted, at_peak, own_peak; /* bytes; -1: not known */
} row;

typedef struct device_rows {
    char uuid[96], name[96];
    bool is_exact; /* measured by the agent; else polled */
    int64_t measured, predicted, limit;
    row rows[CHECK_ROWS];
    int count;
} device_rows;

static row *row_add(device_rows *d, const char *name, int64_t predicted, int64_t at_peak, int64_t own_peak) {
    row *r = &d->rows[d->count++];
    *r = (row){.predicted = predicted, .at_peak = at_peak, .own_peak = own_peak};
    snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

static row *row_find(device_rows *d, const char *name) {
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->rows[i].name, name) == 0) return &d->rows[i];
    return d->count < CHECK_ROWS ? row_add(d, name, -1, 0, 0) : &d->rows[d->count - 1];
}

/* ---- rows of one device ---- */

/* A server after its start: what its profile run left, and the cache; -1: unknown. The peak of the profile run is over
 * then. For engines that allocate buffers directly, the estimate's peak is their sum. */
static int64_t server_of(const cJSON *serving, const char *name) {
    const cJSON *card = cli_at(serving, "card");
    int64_t cache = cli_int_at(serving, "blocks") * cli_int_at(serving, "block_bytes"),
            reserved = cli_int_at(serving, "consumed") + cli_int_at(serving, "graphs") + cache +
                       cli_int_at(card, "block_tables");
    if (strcmp(name, "context") == 0) return cli_int_at(card, "context");
    if (strcmp(name, "reserved") == 0) return reserved;
    return strcmp(name, "device") == 0 ? reserved + cli_int_at(card, "context") : -1;
}

static int64_t estimate_of(const check *c, const char *name) {
    const cJSON *serving = cli_at(c->predicted, "serving");
    if (serving && !cli_at(serving, "buffers")) return server_of(serving, name);
    const cJSON *value = cli_at(cli_at(c->predicted, "peak"), name);
    return value ? cli_int(value) : -1;
}

/* PyTorch's own statistics for the device: the sums of peaks over processes. */
static void torch_sums(const check *c, const char *uuid, int64_t *allocated, int64_t *reserved) {
    const cJSON *seen, *device;
    *allocated = *reserved = 0;
    cJSON_ArrayForEach(seen, c->processes)
        cJSON_ArrayForEach(device, cli_at(seen, "devices")) if (strcmp(cli_text_at(device, "uuid"), uuid) == 0) {
        *allocated += cli_int_at(device, "allocated_peak");
        *reserved += cli_int_at(device, "reserved_peak");
    }
}

/* Sums up what agents saw of a device; false: there was none. */
static bool agent_rows(const check *c, device_rows *d, int64_t base) {
    int64_t first = 0, modules = 0;
    bool is_seen = false;
    for (size_t i = 0; i < c->agent_count; i++) {
        for (int k = 0; k < AGENT_DEVICES && c->agents[i].subscribed == 0; k++) {
            const agent_device *a = &c->agents[i].devices[k];
            if (strcmp(a->uuid, d->uuid) != 0 || a->used_peak == 0) continue;
            is_seen = true;
            /* The device's use covers all processes: the largest value that any of them saw. */
            if (a->used_peak > d->measured) d->measured = a->used_peak;
            if (!first || a->first < first) first = a->first;
            modules += a->modules;
            if (a->total) d->limit = a->total;
            for (int o = 0; o < a->owner_count; o++) {
                row *r = row_find(d, a->owners[o].name);
                r->at_peak += a->owners[o].at_peak;
                r->own_peak += a->owners[o].peak;
            }
        }
    }
    if (!is_seen) return false;
    d->measured -= base;
    int64_t context = first > base ? first - base : 0;
    row_add(d, "context", estimate_of(c, "context"), context, context);
    if (modules) row_add(d, "modules", -1, modules, modules);
    return true;
}

static void device_fill(check *c, device_rows *d, const nvml_device *n) {
    int64_t allocated, reserved, known = 0;
    snprintf(d->uuid, sizeof d->uuid, "%s", n->uuid);
    snprintf(d->name, sizeof d->name, "%s", n->name);
    d->limit = n->total - n->reserved;
    torch_sums(c, n->uuid, &allocated, &reserved);
    row_add(d, pytorch, estimate_of(c, "reserved"), 0, 0);
    d->is_exact = agent_rows(c, d, n->base);
    int64_t polled = n->peak - n->base;
    if (!d->is_exact) {
        d->measured = polled;
        d->rows[0].at_peak = d->rows[0].own_peak = reserved;
    } else if (polled > d->measured) {
        d->measured = polled; /* growth between calls, which only polling saw */
    }
    for (int i = 0; i < d->count; i++) known += d->rows[i].at_peak;
    if (reserved == 0 && d->rows[0].own_peak == 0 && d->rows[0].predicted < 0) { /* not a PyTorch program */
        d->count--;
        memmove(d->rows, d->rows + 1, (size_t)d->count * sizeof *d->rows);
    }
    row_add(d, d->is_exact ? "unexplained" : "context_and_rest", d->is_exact ? -1 : estimate_of(c, "context"),
            d->measured - known, -1);
    row *first = &d->rows[0];
    d->predicted = estimate_of(c, "device");
    if (allocated) row_add(d, "allocated", estimate_of(c, "allocated"), -1, allocated);
    if (reserved && d->is_exact && first->own_peak && reserved != first->own_peak)
        check_warn(c, "sources-disagree",
                   "both are shown; a pool beside PyTorch's (graphs, another allocator) is the "
                   "usual cause",
                   "PyTorch counts %" PRId64 " bytes of segments on %s, its calls to the driver %" PRId64, reserved,
                   n->uuid, first->own_peak);
}

bool check_is_used(const check *c, const nvml_device *n) {
    int64_t allocated, reserved;
    torch_sums(c, n->uuid, &allocated, &reserved);
    if (reserved || n->peak > n->base) return true;
    for (size_t i = 0; i < c->agent_count; i++)
        for (int k = 0; k < AGENT_DEVICES; k++)
            if (c->agents[i].devices[k].is_used && strcmp(c->agents[i].devices[k].uuid, n->uuid) == 0) return true;
    return false;
}

/* ---- the verdict ---- */

typedef struct judgement {
    int code;
    const char *name;
    cli_buffer reason;
} judgement;

static double percent(int64_t predicted, int64_t measured) {
    return measured > 0 ? 100.0 * (double)(predicted - measured) / (double)measured : 0;
}

/* For a prediction without a GPU only segments are compared, which do not depend on it. */
static void compare(const check *c, const device_rows *d, int64_t *predicted, int64_t *measured, const char **what) {
    bool has_card = cJSON_IsBool(cli_at(cli_at(c->predicted, "verdict"), "fits"));
    *what = has_card ? "device" : "reserved";
    *predicted = has_card ? d->predicted : d->rows[0].predicted; /* with a prediction the first row is PyTorch's */
    *measured = has_card ? d->measured : d->rows[0].own_peak;
}

static bool is_past(const check *c, int64_t predicted, int64_t measured) {
    double error = percent(predicted, measured);
    if (llabs(predicted - measured) <= c->floor) return false;
    return fabs(error) > c->tolerance || error < -c->tolerance_under;
}

static int steps_of(const check *c) {
    const cJSON *seen;
    int least = -1;
    cJSON_ArrayForEach(seen, c->processes) {
        int steps = cJSON_GetArraySize(cli_at(seen, "steps"));
        if (cJSON_GetArraySize(cli_at(seen, "devices")) && (least < 0 || steps < least)) least = steps;
    }
    return least;
}

static bool is_oom(const check *c) {
    const cJSON *seen;
    cJSON_ArrayForEach(seen, c->processes) if (strstr(cli_text_at(seen, "error"), "out of memory") ||
                                               strstr(cli_text_at(seen, "error"), "OutOfMemory")) return true;
    return false;
}

static judgement judge(const check *c, const device_rows *devices, int count) {
    judgement v = {OBSERVED_OK, "observed", {0}};
    const cJSON *fits = cli_at(cli_at(c->predicted, "verdict"), "fits");
    bool has_failed = !WIFEXITED(c->launch.status) || WEXITSTATUS(c->launch.status) != 0, is_shared = false;
    bool is_server = cli_at(c->predicted, "serving") != NULL; /* has no steps, and runs until it is stopped */
    if (is_server && c->log_count) has_failed = false;
    cli_number one, two;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < c->nvml.count; k++)
            is_shared |= c->others[k] != 0 && strcmp(c->nvml.devices[k].uuid, devices[i].uuid) == 0;
    if (is_oom(c)) {
        bool was_predicted = cJSON_IsFalse(fits);
        v = (judgement){was_predicted  ? OBSERVED_OK
                        : c->predicted ? OBSERVED_NO
                                       : OBSERVED_FAILED,
                        was_predicted ? "pass" : "out of memory",
                        {0}};
        cli_append_text(&v.reason, was_predicted ? "out of memory, as predicted" : "the program ran out of memory");
    } else if (has_failed) {
        v = (judgement){OBSERVED_FAILED, "failed", {0}};
        cli_append_text(&v.reason, "the program ended with ");
        launch_end_text(&c->launch, &v.reason);
    } else if (!c->predicted) {
        cli_append_text(&v.reason, "no --estimate to compare with");
    } else if (is_shared && !c->allows_shared) {
        v = (judgement){OBSERVED_CANNOT, "withheld", {0}};
        cli_append_text(&v.reason, "other processes were on the GPU (--allow-shared compares all the same)");
    } else if (!is_server && steps_of(c) >= 0 && steps_of(c) < 2) {
        v = (judgement){OBSERVED_INCONCLUSIVE, "inconclusive", {0}};
        cli_format(&v.reason, "%d step%s seen; optimizer state and kernels settle in the second", steps_of(c),
                   steps_of(c) == 1 ? " was" : "s were");
    } else {
        v.name = "pass";
        for (int i = 0; i < count; i++) {
            int64_t predicted, measured;
            const char *what;
            compare(c, &devices[i], &predicted, &measured, &what);
            bool past = is_past(c, predicted, measured);
            if (past) v.code = OBSERVED_NO, v.name = "fail";
            cli_format(&v.reason, "%s%s: predicted %s, measured %s (%+.1f %%)", i ? "; " : "", what,
                       cli_size(one, predicted), cli_size(two, measured), percent(predicted, measured));
        }
        for (int i = 0; i < c->log_count; i++) {
            if (engine_log_is_met(&c->log_rows[i])) continue;
            v.code = OBSERVED_NO, v.name = "fail";
            cli_format(&v.reason, "; %s of the engine's log is another", c->log_rows[i].name);
        }
    }
    return v;
}

/* ---- the answer ---- */

static void add_known(cJSON *object, const char *name, int64_t bytes) {
    if (bytes >= 0) cJSON_AddNumberToObject(object, name, (double)bytes);
}

static cJSON *device_json(const device_rows *d) {
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "uuid", d->uuid);
    cJSON_AddStringToObject(out, "name", d->name);
    cJSON_AddStringToObject(out, "method", d->is_exact ? "agent" : "poll");
    cJSON_AddBoolToObject(out, "exact", d->is_exact);
    add_known(out, "measured", d->measured);
    add_known(out, "predicted", d->predicted);
    add_known(out, "limit", d->limit);
    cJSON *list = cJSON_AddArrayToObject(out, "components");
    for (int i = 0; i < d->count; i++) {
        const row *r = &d->rows[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "name", strcmp(r->name, pytorch) == 0 ? "reserved" : r->name);
        add_known(one, "predicted", r->predicted);
        if (strcmp(r->name, "allocated") != 0) cJSON_AddNumberToObject(one, "at_peak", (double)r->at_peak);
        add_known(one, "own_peak", r->own_peak);
        cJSON_AddItemToArray(list, one);
    }
    return out;
}

cJSON *check_answer(check *c, int *status) {
    static device_rows devices[NVML_DEVICES];
    int count = 0;
    observed_process worst;
    cJSON *answer = cJSON_CreateObject();
    for (int i = 0; i < c->nvml.count; i++)
        if (check_is_used(c, &c->nvml.devices[i])) {
            devices[count] = (device_rows){0};
            device_fill(c, &devices[count++], &c->nvml.devices[i]);
        }
    judgement v = judge(c, devices, count);
    cJSON_AddBoolToObject(answer, "ok", true);
    cJSON_AddStringToObject(answer, "how", "check");
    cJSON *told = cJSON_AddObjectToObject(answer, "verdict");
    cJSON_AddNumberToObject(told, "code", v.code);
    cJSON_AddStringToObject(told, "name", v.name);
    cJSON_AddStringToObject(told, "reason", v.reason.at ? v.reason.at : "");
    cli_buffer_free(&v.reason);
    cJSON *driver = cJSON_AddObjectToObject(answer, "driver");
    cJSON_AddStringToObject(driver, "version", c->nvml.driver);
    cJSON_AddNumberToObject(driver, "cuda", c->nvml.cuda);
    cJSON *child = cJSON_AddObjectToObject(answer, "child");
    cJSON_AddNumberToObject(child, "exit", WIFEXITED(c->launch.status) ? WEXITSTATUS(c->launch.status) : -1);
    cJSON_AddNumberToObject(child, "signal", WIFSIGNALED(c->launch.status) ? WTERMSIG(c->launch.status) : 0);
    cJSON_AddNumberToObject(child, "milliseconds", (double)(int64_t)(c->launch.seconds * 1e3));
    cJSON *list = cJSON_AddArrayToObject(answer, "devices");
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, device_json(&devices[i]));
    if (observed_worst(&worst, c->processes)) {
        observed_answer(answer, &worst, c->processes);
        if (count) cJSON_AddNumberToObject(cJSON_GetObjectItem(answer, "peak"), "device", (double)devices[0].measured);
    }
    const cJSON *note; /* of the hook */
    cJSON_ArrayForEach(note, cli_at(answer, "notes")) check_warn(
        c, cli_text_at(note, "kind"), "peaks of PyTorch may be missing above", "%s", cli_text_at(note, "text"));
    if (c->log_count) cJSON_AddItemToObject(answer, "log", engine_log_json(c->log_rows, c->log_count));
    cJSON_AddItemToObject(answer, "warnings", cJSON_Duplicate(c->warnings, true));
    *status = v.code;
    return answer;
}

/* ---- the screen ---- */

static const char *title_of(const char *name) {
    static const struct {
        const char *name, *title;
    } titles[] = {{"reserved", "PyTorch's segments"},
                  {"allocated", "of them allocated"},
                  {"modules", "Kernels loaded"},
                  {"unexplained", "Unexplained"},
                  {"context_and_rest", "Context and all else"}};
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        if (strcmp(titles[i].name, name) == 0) return titles[i].title;
    return cli_factor_title(name);
}

static void cell(cli_table *table, const cJSON *value, cli_unit unit) {
    cli_number text;
    cli_table_cell(table, cJSON_IsNumber(value) ? cli_amount(text, cli_int(value), unit) : "");
}

static void error_cell(cli_table *table, const cJSON *predicted, const cJSON *measured) {
    char text[32] = "";
    if (cJSON_IsNumber(predicted) && cJSON_IsNumber(measured) && cli_int(measured) > 0)
        snprintf(text, sizeof text, "%+.1f %%", percent(cli_int(predicted), cli_int(measured)));
    cli_table_cell(table, text);
}

static void row_show(cli_table *table, const cJSON *one, cli_unit unit) {
    const cJSON *own = cli_at(one, "own_peak"), *at = cli_at(one, "at_peak");
    cli_table_cell(table, title_of(cli_text_at(one, "name")));
    cell(table, cli_at(one, "predicted"), unit);
    cell(table, at, unit);
    cell(table, own, unit);
    error_cell(table, cli_at(one, "predicted"), own ? own : at);
}

static void device_show(const cJSON *device, bool is_exact) {
    static const char *const heads[] = {"", "Predicted", "At the peak", "Own peak", "Error"};
    cli_unit unit = is_exact ? CLI_BYTES : cli_int_at(device, "measured") < 1 << 30 ? CLI_MIB : CLI_GIB;
    const cJSON *one;
    cli_buffer head = {0};
    cli_table table;
    cli_number limit;
    cli_format(&head, "%s (%s), %s; %s usable, %s", cli_text_at(device, "name"), cli_text_at(device, "uuid"),
               cli_true_at(device, "exact") ? "read at every driver call" : "polled every 10 ms: a lower bound",
               cli_size(limit, cli_int_at(device, "limit")), cli_unit_name(unit));
    cli_heading(head.at);
    cli_buffer_free(&head);
    cli_table_init(&table, 5);
    for (size_t i = 0; i < 5; i++) cli_table_cell(&table, heads[i]);
    cli_table_rule(&table);
    const char *last = "allocated";
    cJSON_ArrayForEach(one, cli_at(device, "components")) {
        if (strcmp(cli_text_at(one, "name"), last) == 0) continue;
        row_show(&table, one, unit);
        const cJSON *other;
        if (strcmp(cli_text_at(one, "name"), "reserved") == 0)
            cJSON_ArrayForEach(other, cli_at(device, "components")) if (strcmp(cli_text_at(other, "name"), last) == 0)
                row_show(&table, other, unit);
    }
    cli_table_rule(&table);
    cli_table_cell(&table, "Device");
    cell(&table, cli_at(device, "predicted"), unit);
    cell(&table, cli_at(device, "measured"), unit);
    cell(&table, cli_at(device, "measured"), unit);
    error_cell(&table, cli_at(device, "predicted"), cli_at(device, "measured"));
    cli_table_print(&table);
}

void check_show(const cJSON *answer, bool is_exact) {
    const cJSON *verdict = cli_at(answer, "verdict"), *device, *warning;
    int64_t code = cli_int_at(verdict, "code");
    printf("%s%s%s  %s\n", cli_styled(code == 0 ? CLI_GREEN : CLI_RED), cli_text_at(verdict, "name"), cli_styled_end(),
           cli_text_at(verdict, "reason"));
    cJSON_ArrayForEach(device, cli_at(answer, "devices")) device_show(device, is_exact);
    if (cli_at(answer, "steps")) {
        bool is_small = cli_int_at(cli_at(answer, "peak"), "reserved") < 1 << 30;
        cli_steps_show(answer, is_exact ? CLI_BYTES : is_small ? CLI_MIB : CLI_GIB);
    }
    if (cJSON_GetArraySize(cli_at(answer, "warnings"))) cli_heading("Look at");
    cJSON_ArrayForEach(warning, cli_at(answer, "warnings")) {
        cli_buffer text = {0};
        cli_format(&text, "%s; %s", cli_text_at(warning, "text"), cli_text_at(warning, "hint"));
        printf("  %s%s%s  ", cli_styled(CLI_BOLD), cli_text_at(warning, "id"), cli_styled_end());
        cli_wrapped(text.at, 4, 4 + cli_width(cli_text_at(warning, "id")));
        cli_buffer_free(&text);
    }
}
