/* SPDX-License-Identifier: Apache-2.0 */
/* Failures point to core/src/tensor/: a rule in ops/ that is not what PyTorch does, or the
 * engine's order.
 *
 *     test_ops tests/oracle [PATTERN]
 *
 * ops.jsonl holds what PyTorch allocated and freed for single operations, forward and backward;
 * ops_expressions.json says for each what computes it here. Allocations must agree in size and
 * order, frees in their place; which of several tensors freed in a row goes first is not compared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/src/lang/embedded_models.h"
#include "../../core/src/lang/module.h"
#include "../../core/src/tensor/checkpoint.h"

enum { INPUT_LIMIT = 8, ROOT_LIMIT = 8, EVENT_LIMIT = 4096, NAME_LIMIT = 128 };

typedef struct event {
    bool is_free;
    int64_t id; /* in order of allocation; -1: made before what is recorded */
    uint64_t bytes;
} event;

typedef struct events {
    event items[EVENT_LIMIT];
    int count;
} events;

typedef struct row {
    const tide_json *json, *expression;
    const char *name;
    tide_machine *m;
    int64_t *ids; /* by allocation */
    int64_t id_count;
    tide_tensor *inputs[INPUT_LIMIT];
    const tide_json *specs[INPUT_LIMIT];
    int input_count;
    bool is_different;
} row;

static int passed, failed;
static events expected, got;

static char *read_file(const char *folder, const char *name, size_t *length) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    size_t capacity = 1 << 20, used = 0, more;
    char *text = malloc(capacity);
    while (text && (more = fread(text + used, 1, capacity - used, file)) > 0) {
        used += more;
        if (used == capacity) text = realloc(text, capacity *= 2);
    }
    fclose(file);
    if (!text) exit(2);
    *length = used;
    return text;
}

static tide_source find_source(void *user, tide_text name) {
    (void)user;
    for (uint32_t i = 0; i < tide_architecture_source_count; i++)
        if (tide_text_is(name, tide_architecture_sources[i].name)) return tide_architecture_sources[i];
    return (tide_source){.text = NULL};
}

/* ---- events ---- */

static void put(events *list, event e) {
    if (list->count < EVENT_LIMIT) list->items[list->count++] = e;
}

static void read_expected(events *list, const tide_json *json) {
    list->count = 0;
    for (const tide_json *e = json ? json->first : NULL; e; e = e->next) {
        const tide_json *id = e->first;
        event made = {.is_free = e->count == 1, .id = id->kind == TIDE_JSON_NUMBER ? id->integer : -1};
        if (!made.is_free) made.bytes = (uint64_t)id->next->integer;
        put(list, made);
    }
}

/* What the machine did from event `from` on; numbers the allocations. */
static void read_timeline(events *list, row *r, uint32_t from) {
    const tide_timeline *timeline = &r->m->timeline;
    list->count = 0;
    for (uint32_t i = from; i < timeline->event_count; i++) {
        uint32_t allocation = timeline->events[i] & ~TIDE_FREE_BIT;
        bool is_free = timeline->events[i] & TIDE_FREE_BIT;
        if (!is_free) r->ids[allocation] = r->id_count++;
        put(list, (event){is_free, r->ids[allocation], is_free ? 0 : tide_timeline_at(timeline, allocation)->bytes});
    }
}

static int by_id(const void *a, const void *b) {
    const event *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static void sort_frees(events *list) {
    for (int i = 0; i < list->count; i++) {
        int end = i;
        while (end < list->count && list->items[end].is_free) end++;
        if (end > i) qsort(list->items + i, (size_t)(end - i), sizeof *list->items, by_id);
        if (end > i) i = end - 1;
    }
}

/* The events around the place where the two differ. */
static void print_events(const char *title, const events *list, int at) {
    int first = at < 12 ? 0 : at - 8;
    printf("     %s:%s", title, first ? " ..." : "");
    for (int i = first; i < list->count && i < at + 24; i++) {
        const event *e = &list->items[i];
        if (i == at) printf("  >>");
        if (!e->is_free)
            printf(" +%" PRId64 ":%" PRIu64, e->id, e->bytes);
        else if (e->id < 0)
            printf(" -older");
        else
            printf(" -%" PRId64, e->id);
    }
    printf("%s\n", list->count > at + 24 ? " ..." : "");
}

static void differs(row *r) {
    if (!r->is_different) printf("FAIL %s\n", r->name);
    r->is_different = true;
}

static void compare(row *r, const char *what) {
    sort_frees(&expected);
    sort_frees(&got);
    int at = 0;
    while (at < expected.count && at < got.count) {
        const event *e = &expected.items[at], *g = &got.items[at];
        if (e->is_free != g->is_free || e->id != g->id || e->bytes != g->bytes) break;
        at++;
    }
    if (at == expected.count && at == got.count) return;
    differs(r);
    printf("     %s\n", what);
    print_events("expected", &expected, at);
    print_events("got     ", &got, at);
}

/* ---- playing a row ---- */

static tide_dtype dtype_named(tide_text name) {
    if (tide_text_is(name, "i64")) return TIDE_INT64;
    for (int i = 0; i < TIDE_DTYPE_COUNT; i++)
        if (tide_text_is(name, tide_dtype_names[i])) return (tide_dtype)i;
    printf("no dtype %.*s\n", (int)name.length, name.at);
    exit(2);
}

/* name -> [shape, dtype, requires_grad] */
static void make_inputs(row *r) {
    const tide_json *inputs = tide_json_at(r->json, "inputs");
    for (const tide_json *spec = inputs->first; spec && r->input_count < INPUT_LIMIT; spec = spec->next) {
        const tide_json *sizes = spec->first, *dtype = sizes->next, *grad = dtype->next;
        tide_shape shape = {.dims = 0};
        for (const tide_json *n = sizes->first; n; n = n->next) shape.dim[shape.dims++].size = n->integer;
        tide_tensor *t = tide_empty(r->m, &shape, dtype_named(dtype->text));
        t->requires_grad = grad->is_true;
        r->specs[r->input_count] = spec;
        r->inputs[r->input_count++] = t;
    }
}

static const char *const sdpa_names[] = {"flash", "efficient", "math", "cudnn", "default"};

static tide_sdpa_choice sdpa_of(const tide_json *expression) {
    const tide_json *sdpa = tide_json_at(expression, "sdpa");
    for (int i = 0; sdpa && i < 5; i++)
        if (tide_text_is(sdpa->text, sdpa_names[i])) return (tide_sdpa_choice)i;
    return TIDE_SDPA_DEFAULT;
}

/* torch.autograd.backward(roots, grads): the GraphRoot hands every root its gradient. */
static tide_tensor *seeds[ROOT_LIMIT];

static void graph_root_run(tide_machine *m, tide_node *node, tide_tensor **grads, tide_tensor **results) {
    (void)m;
    (void)grads;
    for (unsigned i = 0; i < node->edge_count; i++) results[i] = tide_retain(seeds[i]);
}
static const tide_backward graph_root = {.name = "GraphRoot", .run = graph_root_run};

static void run_backward(row *r, tide_tensor **roots, int count) {
    tide_machine *m = r->m;
    tide_shape scalar = {.dims = 0};
    tide_node *node = tide_node_new(m, &graph_root, roots, count);
    tide_tensor *root = tide_set_grad_fn(m, node, tide_empty_host(m, &scalar, TIDE_FP32));
    tide_tensor *one = tide_empty_host(m, &scalar, TIDE_FP32);
    tide_run_backward_from(m, &root, &one, 1);
    tide_release(m, one);
    tide_release(m, root);
}

static int find_roots(tide_value v, tide_tensor **roots, int count) {
    if (v.kind == TIDE_VALUE_TENSOR && v.tensor->requires_grad && count < ROOT_LIMIT) roots[count++] = v.tensor;
    for (uint32_t i = 0; v.kind == TIDE_VALUE_LIST && i < v.list->count; i++)
        count = find_roots(v.list->items[i], roots, count);
    return count;
}

static void compare_grads(row *r) {
    const tide_json *grads = tide_json_at(r->json, "grads");
    for (int i = 0; i < r->input_count; i++) {
        const tide_json *want = tide_json_find(grads, r->specs[i]->key);
        const tide_tensor *g = r->inputs[i]->grad;
        int64_t have = g && !g->storage->is_untracked ? r->ids[g->storage->allocation] : -1;
        if (want && want->kind == TIDE_JSON_NUMBER ? want->integer == have : !want == !g) continue;
        differs(r);
        printf("     the gradient of %s is another allocation: %" PRId64 "\n", r->specs[i]->key.at, have);
    }
}

/* Under "checkpoint" the function runs by torch.utils.checkpoint, as often as "times" says, each
 * time on its last result. */
typedef struct repeated {
    tide_model *model;
    tide_function *function;
} repeated;

static tide_value call_again(tide_machine *m, void *function, tide_value *inputs, uint32_t count) {
    (void)m;
    const repeated *of = function;
    return tide_model_run(of->model, of->function, inputs, count);
}

static void function_free(tide_machine *m, void *function) {
    (void)m;
    (void)function;
}

static tide_value run_forward(row *r, repeated *of, tide_value *arguments) {
    tide_machine *m = r->m;
    uint32_t count = (uint32_t)r->input_count;
    const tide_json *kind = tide_json_at(r->expression, "checkpoint");
    const tide_json *times = tide_json_at(r->expression, "times");
    if (!kind) return tide_model_run(of->model, of->function, arguments, count);
    m->call_again = call_again;
    m->function_free = function_free;
    tide_value first = arguments[0], out = tide_none();
    for (int64_t i = times ? times->integer : 1; i > 0; i--) {
        out = tide_checkpoint_call(m, tide_text_is(kind->text, "reentrant"), of, arguments, count);
        if (arguments[0].tensor != first.tensor) tide_value_release(m, arguments[0]);
        arguments[0] = out;
    }
    return out;
}

static void play(row *r, tide_model *model, tide_function *function) {
    tide_machine *m = r->m;
    const tide_json *mode = tide_json_at(r->json, "mode");
    make_inputs(r);
    tide_value arguments[INPUT_LIMIT];
    for (int i = 0; i < r->input_count; i++) arguments[i] = tide_of_tensor(r->inputs[i]);
    uint32_t start = m->timeline.event_count;
    if (tide_text_starts(mode->text, TIDE_TEXT("amp"))) tide_autocast_begin(m, TIDE_BF16);
    repeated of = {model, function};
    tide_value out = run_forward(r, &of, arguments);
    if (m->state.autocast_enabled) tide_autocast_end(m);
    if (m->has_failed) return;
    read_expected(&expected, tide_json_at(r->json, "forward"));
    read_timeline(&got, r, start);
    compare(r, "forward");
    tide_tensor *roots[ROOT_LIMIT];
    int count = find_roots(out, roots, 0);
    const tide_json *backward = tide_json_at(r->json, "backward");
    if (!backward || !count) {
        if (backward || count) {
            differs(r);
            printf("     a backward pass: %s\n", backward ? "expected" : "not expected");
        }
        return;
    }
    for (int i = 0; i < count; i++) seeds[i] = tide_empty_like(m, roots[i], roots[i]->dtype);
    start = m->timeline.event_count;
    run_backward(r, roots, count);
    if (m->has_failed) return;
    read_expected(&expected, backward);
    read_timeline(&got, r, start);
    compare(r, "backward");
    if (!r->is_different) compare_grads(r);
}

static tide_function *function_of(tide_arena *arena, tide_descriptions *set, const tide_json *expression) {
    for (const tide_json *item = expression->first; item; item = item->next) {
        if (item->kind != TIDE_JSON_ARRAY) continue;
        tide_function *function = TIDE_NEW(arena, tide_function, 1);
        function->description = tide_description_load(set, TIDE_TEXT("library/layers"));
        if (!function->description || !tide_description_load(set, TIDE_TEXT("library/attention")) ||
            !tide_description_load(set, TIDE_TEXT("library/losses")) ||
            !tide_description_load(set, TIDE_TEXT("library/rotary")) ||
            !tide_parse_head(arena, item->key, "", &function->name, &function->parameters, &function->parameter_count,
                             set->diags) ||
            !tide_parse_block(arena, item, "", &set->statement_count, &function->body, set->diags))
            return NULL;
        return function;
    }
    return NULL;
}

static int capability_of(const tide_json *json) {
    const tide_json *capability = tide_json_at(json, "capability");
    return capability ? (int)capability->integer : 90;
}

static void check(const tide_json *json, const char *name, const tide_json *expression) {
    tide_arena arena;
    tide_diagnostics diags;
    tide_machine machine;
    tide_descriptions set;
    tide_model model;
    tide_arena_init(&arena, tide_default_allocator(), NULL);
    tide_diagnostics_init(&diags, &arena);
    tide_machine_init(&machine, &arena, &diags);
    tide_descriptions_init(&set, &arena, &diags, find_source, NULL);
    tide_model_init(&model, &machine, &set);
    machine.device.capability = capability_of(json);
    machine.sdpa = sdpa_of(expression);
    row r = {.json = json, .expression = expression, .name = name, .m = &machine};
    r.ids = TIDE_NEW(&arena, int64_t, EVENT_LIMIT);
    for (int i = 0; i < EVENT_LIMIT; i++) r.ids[i] = -1;
    tide_function *function = function_of(&arena, &set, expression);
    if (function) play(&r, &model, function);
    if (!function || machine.has_failed || diags.count) {
        differs(&r);
        for (uint32_t i = 0; i < diags.count; i++)
            printf("     %s: %s\n", diags.items[i].place, diags.items[i].message);
    }
    if (r.is_different)
        failed++;
    else
        passed++;
    tide_arena_free(&arena);
}

/* ---- rows without an expression, by the name of their operation ---- */

static struct {
    tide_text op;
    int count;
} lacking[NAME_LIMIT];
static int lacking_count;

static void lacks(tide_text op) {
    int i = 0;
    while (i < lacking_count && !tide_text_equal(lacking[i].op, op)) i++;
    if (i == NAME_LIMIT) return;
    if (i == lacking_count) lacking[lacking_count++].op = op;
    lacking[i].count++;
}

static const tide_json *expression_of(const tide_json *expressions, const tide_json *json) {
    tide_text op = tide_json_at(json, "op")->text, variant = tide_json_at(json, "variant")->text;
    for (const tide_json *e = expressions->first; e; e = e->next)
        if (tide_text_equal(tide_json_at(e, "op")->text, op) &&
            tide_text_equal(tide_json_at(e, "variant")->text, variant))
            return e;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "test_ops FOLDER [PATTERN]\n");
        return 2;
    }
    size_t rows_length, length;
    char *rows = read_file(argv[1], "ops.jsonl", &rows_length),
         *text = read_file(argv[1], "ops_expressions.json", &length);
    tide_arena arena;
    tide_diagnostics diags;
    tide_arena_init(&arena, tide_default_allocator(), NULL);
    tide_diagnostics_init(&diags, &arena);
    const tide_json *expressions = tide_json_parse(&arena, (tide_text){text, length}, "/ops_expressions.json", &diags);
    for (size_t at = 0; at < rows_length && expressions;) {
        size_t end = at;
        while (end < rows_length && rows[end] != '\n') end++;
        const tide_json *json = tide_json_parse(&arena, (tide_text){rows + at, end - at}, "/ops.jsonl", &diags);
        at = end + 1;
        if (!json) break;
        const char *name = tide_format(&arena, "%s / %s / %s / sm_%d", tide_json_at(json, "op")->text.at,
                                       tide_json_at(json, "variant")->text.at, tide_json_at(json, "mode")->text.at,
                                       capability_of(json));
        if (argc > 2 && !strstr(name, argv[2])) continue;
        const tide_json *expression = expression_of(expressions, json);
        if (expression)
            check(json, name, expression);
        else
            lacks(tide_json_at(json, "op")->text);
    }
    for (uint32_t i = 0; i < diags.count; i++) {
        printf("FAIL %s: %s\n", diags.items[i].place, diags.items[i].message);
        failed++;
    }
    if (lacking_count) printf("not described:");
    for (int i = 0; i < lacking_count; i++)
        printf("%s %.*s %d", i ? "," : "", (int)lacking[i].op.length, lacking[i].op.at, lacking[i].count);
    if (lacking_count) printf("\n");
    tide_arena_free(&arena);
    free(rows);
    free(text);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
