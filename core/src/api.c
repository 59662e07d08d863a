/* The one door: a JSON request in, a JSON answer out. */
#include "tidemark/tidemark.h"

#include <string.h>

#include "answer/ranks.h"
#include "answer/align.h"
#include "answer/recorded.h"
#include "answer/report.h"
#include "answer/stages.h"
#include "answer/trials.h"
#include "job/links.h"
#include "model/sources.h"
#include "training/lint.h"

typedef struct call {
    tide_arena arena, trial; /* trial: for ranks that are tried */
    tide_diagnostics diags;
    tide_writer writer;
    const tide_json *request;
    tide_recording *recording; /* NULL: none was given but in the request */
    tide_link *link;           /* NULL: the request has none */
} call;

enum { WORD_LIMIT = 4096, FILE_LIMIT = 64 };

/* ---- what requests hold ---- */

static tide_text text_at(const call *c, const char *key) {
    const tide_json *found = tide_json_at(c->request, key);
    return found && found->kind == TIDE_JSON_STRING ? found->text : TIDE_TEXT("");
}

/* "link": the words and files of a link, which those of the request hold over. */
static const tide_link *link_of(call *c) {
    const tide_json *text = tide_json_at(c->request, "link");
    if (c->link || !text || text->kind != TIDE_JSON_STRING) return c->link;
    c->link = TIDE_NEW(&c->arena, tide_link, 1);
    tide_link_read(&c->arena, text->text, c->link, &c->diags);
    return c->link;
}

static bool read_words_at(call *c, const char *key, tide_text **words, uint32_t *count) {
    const tide_json *settings = tide_json_at(c->request, key);
    *count = 0;
    *words = TIDE_NEW(&c->arena, tide_text, WORD_LIMIT);
    if (!settings) return true;
    if (settings->kind != TIDE_JSON_ARRAY || settings->count > WORD_LIMIT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, tide_format(&c->arena, "/%s", key), "settings is an array of at most 4096 words like \"batch=4\"", NULL);
    for (const tide_json *word = settings->first; word; word = word->next) {
        if (word->kind != TIDE_JSON_STRING)
            return tide_error(&c->diags, TIDE_ERR_REQUEST, tide_json_place(&c->arena, word, ""), "a setting is a text like \"batch=4\"", NULL);
        (*words)[(*count)++] = word->text;
    }
    return true;
}

static bool read_words(call *c, tide_text **words, uint32_t *count) {
    if (!read_words_at(c, "settings", words, count)) return false;
    if (!link_of(c)) return true;
    if (*count) c->link->was = TIDE_TEXT(""); /* another job than that of the link */
    *count = tide_link_join(&c->arena, c->link, *words, *count, words);
    return true;
}

static bool read_given_files(call *c, tide_file **files, uint32_t *count) {
    const tide_json *given = tide_json_at(c->request, "files");
    *count = 0;
    *files = TIDE_NEW(&c->arena, tide_file, FILE_LIMIT);
    if (!given) return true;
    if (given->kind != TIDE_JSON_ARRAY || given->count > FILE_LIMIT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/files", "files is an array of at most 64 {\"name\", \"text\"}", NULL);
    for (const tide_json *file = given->first; file; file = file->next) {
        const tide_json *name = tide_json_at(file, "name"), *text = tide_json_at(file, "text");
        if (!name || !text || name->kind != TIDE_JSON_STRING || text->kind != TIDE_JSON_STRING)
            return tide_error(&c->diags, TIDE_ERR_REQUEST, tide_json_place(&c->arena, file, ""), "a file is {\"name\": ..., \"text\": ...}", NULL);
        (*files)[(*count)++] = (tide_file){name->text, text->text};
    }
    return true;
}

/* The files of the request, and those of its link. */
static bool read_files(call *c, tide_file **files, uint32_t *count) {
    if (!read_given_files(c, files, count)) return false;
    const tide_link *link = link_of(c);
    for (uint32_t i = 0; *count < FILE_LIMIT && link && i < link->file_count; i++) (*files)[(*count)++] = link->files[i];
    return true;
}

static tide_job *build_job(call *c) {
    tide_text *words;
    tide_file *files;
    uint32_t word_count, file_count;
    if (!read_words(c, &words, &word_count) || !read_files(c, &files, &file_count)) return NULL;
    tide_job *job = tide_job_build(&c->arena, words, word_count, files, file_count, &c->diags);
    if (job) job->was = c->link ? c->link->was : text_at(c, "was");
    return job;
}

static void open_answer(call *c) {
    tide_writer_init(&c->writer, &c->arena);
    tide_write_open(&c->writer, '{');
    tide_write_bool_at(&c->writer, "ok", true);
    tide_write_string_at(&c->writer, "tidemark", TIDEMARK_VERSION);
}

/* ---- calls ---- */

static bool call_version(call *c) {
    open_answer(c);
    return true;
}

static bool call_describe(call *c) {
    const tide_json *check = tide_json_at(c->request, "check");
    open_answer(c);
    if (check && check->kind == TIDE_JSON_STRING) { /* the text of a description */
        tide_write_key(&c->writer, "check");
        tide_write_lint(&c->writer, &c->arena, check->text);
        return true;
    }
    tide_job_describe(&c->arena, &c->writer);
    tide_write_key(&c->writer, "ops");
    tide_write_open(&c->writer, '[');
    for (int t = 0; t < TIDE_OP_TABLES; t++)
        for (uint32_t i = 0; i < tide_op_tables[t]->count; i++) {
            tide_write_open(&c->writer, '{');
            tide_write_string_at(&c->writer, "name", tide_op_tables[t]->ops[i].name);
            tide_write_string_at(&c->writer, "signature", tide_op_tables[t]->ops[i].signature);
            tide_write_close(&c->writer, '}');
        }
    tide_write_close(&c->writer, ']');
    tide_write_key(&c->writer, "model_types");
    tide_write_open(&c->writer, '[');
    for (uint32_t i = 0; i < tide_model_type_count; i++) tide_write_string(&c->writer, tide_model_types[i].model_type);
    tide_write_close(&c->writer, ']');
    return true;
}

static bool out_of_memory(call *c) {
    tide_arena_fail(&c->arena);
    return false;
}

static bool run_job(call *c, tide_run *run, tide_job *job) {
    if (!job) return false;
    tide_replay_config config = tide_report_config(job);
    return tide_run_ranks(run, job, &config, &c->arena, &c->trial, &c->diags);
}

static bool call_estimate(call *c) {
    tide_job *job = build_job(c);
    tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
    if (!run_job(c, run, job)) return false;
    const tide_json *with_options = tide_json_at(c->request, "options");
    open_answer(c);
    return tide_write_estimate(&c->writer, run, job, &c->diags, with_options && with_options->is_true) || out_of_memory(c);
}

static bool call_measure(call *c) {
    tide_job *job = build_job(c);
    tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
    if (!run_job(c, run, job)) return false;
    open_answer(c);
    return tide_write_measure(&c->writer, run, job) || out_of_memory(c);
}

static bool call_explain(call *c) {
    tide_job *job = build_job(c);
    tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
    if (!run_job(c, run, job)) return false;
    const tide_json *of = tide_json_at(c->request, "of"), *stage = tide_json_at(c->request, "stage");
    tide_text filter = of && of->kind == TIDE_JSON_STRING ? of->text : TIDE_TEXT("");
    open_answer(c);
    if (!stage) return tide_write_explanation(&c->writer, run, job, filter) || out_of_memory(c);
    bool is_known = false;
    if (stage->kind == TIDE_JSON_STRING && !tide_write_stage(&c->writer, run, job, stage->text, filter, &is_known)) return out_of_memory(c);
    return is_known || tide_error(&c->diags, TIDE_ERR_REQUEST, "/stage", "no such stage", tide_format(&c->arena, "there are %s", tide_stage_names));
}

/* "with": the words of a baseline; "was": true notes what it comes to now; "view": what the page shows. */
static bool call_link(call *c) {
    tide_job *job = build_job(c), *baseline = NULL;
    tide_text *words, was = TIDE_TEXT("");
    tide_file *files;
    uint32_t word_count, file_count;
    const tide_json *with_was = tide_json_at(c->request, "was");
    if (!job || !read_words_at(c, "with", &words, &word_count) || !read_files(c, &files, &file_count)) return false;
    if (word_count) {
        tide_diagnostics scratch; /* its remarks are those of the job */
        tide_diagnostics_init(&scratch, &c->arena);
        baseline = tide_job_build(&c->arena, words, word_count, files, file_count, &scratch);
        if (!baseline) return tide_error(&c->diags, TIDE_ERR_REQUEST, "/with", scratch.items[0].message, scratch.items[0].remedy);
    }
    if (with_was && with_was->is_true) {
        tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
        if (!run_job(c, run, job)) return false;
        tide_replay replay;
        tide_replay_config config = tide_report_config(job);
        if (!tide_replay_timeline(&replay, &run->machine.timeline, &config, false)) return out_of_memory(c);
        was = tide_text_of(tide_format(&c->arena, "%s_%s", tide_gib_digits(&c->arena, tide_report_device_bytes(job, &replay)), TIDEMARK_VERSION));
    }
    open_answer(c);
    tide_write_string_at(&c->writer, "link", tide_link_write_more(&c->arena, job, baseline, was, text_at(c, "view")));
    return true;
}

static void write_words(call *c, const char *key, const tide_text *words, uint32_t count) {
    tide_write_key(&c->writer, key);
    tide_write_open(&c->writer, '[');
    for (uint32_t i = 0; i < count; i++) tide_write_text(&c->writer, words[i]);
    tide_write_close(&c->writer, ']');
}

/* What a link says, and what of it could not be read. */
static bool call_read_link(call *c) {
    const tide_link *link = link_of(c);
    if (!link) return tide_error(&c->diags, TIDE_ERR_REQUEST, "/link", "read_link needs \"link\"", NULL);
    open_answer(c);
    write_words(c, "settings", link->words, link->word_count);
    if (link->baseline_count) write_words(c, "baseline", link->baseline, link->baseline_count);
    tide_write_key(&c->writer, "files");
    tide_write_open(&c->writer, '[');
    for (uint32_t i = 0; i < link->file_count; i++) {
        tide_write_open(&c->writer, '{');
        tide_write_key(&c->writer, "name");
        tide_write_text(&c->writer, link->files[i].name);
        tide_write_key(&c->writer, "text");
        tide_write_text(&c->writer, link->files[i].text);
        tide_write_close(&c->writer, '}');
    }
    tide_write_close(&c->writer, ']');
    tide_write_key(&c->writer, "was");
    tide_write_text(&c->writer, link->was);
    tide_write_key(&c->writer, "view");
    tide_write_text(&c->writer, link->view);
    tide_write_diagnostics(&c->writer, &c->diags, false);
    return true;
}

static void not_expressed(call *c, const char *reason) {
    open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", false);
    tide_write_string_at(&c->writer, "reason", reason);
}

/* A case of the oracle, and what tidemark says of it. */
static bool call_verify(call *c) {
    const tide_json *of_case = tide_json_at(c->request, "case");
    tide_text *words;
    tide_file *files;
    uint32_t word_count, file_count;
    const char *reason = NULL;
    if (!of_case || of_case->kind != TIDE_JSON_OBJECT)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/case", "verify needs a case", NULL);
    if (!tide_job_words_of_case(&c->arena, of_case, &words, &word_count, &reason)) {
        not_expressed(c, reason ? reason : "a key of the case");
        return true;
    }
    if (!read_files(c, &files, &file_count)) return false;
    tide_job *job = tide_job_build(&c->arena, words, word_count, files, file_count, &c->diags);
    tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
    if (!run_job(c, run, job)) {
        tide_status status = c->diags.first_error;
        if (status != TIDE_ERR_MODEL_UNKNOWN && status != TIDE_ERR_UNSUPPORTED) return false;
        const char *message = "";
        for (uint32_t i = 0; i < c->diags.count && !*message; i++)
            if (c->diags.items[i].severity == TIDE_ERROR) message = c->diags.items[i].message;
        not_expressed(c, message);
        return true;
    }
    open_answer(c);
    tide_write_bool_at(&c->writer, "expressed", true);
    return tide_write_figures(&c->writer, run, job) || out_of_memory(c);
}

#if TIDEMARK_RECORDINGS
/* ---- recordings ---- */

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* False at a letter that is none of base64. */
static bool feed_base64(tide_recording *r, tide_text text) {
    unsigned char piece[3072];
    size_t length = 0;
    uint32_t bits = 0, count = 0;
    while (text.length && text.at[text.length - 1] == '=') text.length--;
    for (size_t i = 0; i < text.length; i++) {
        int digit = base64_digit(text.at[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count >= 8) piece[length++] = (unsigned char)(bits >> (count -= 8));
        if (length == sizeof piece || i + 1 == text.length) {
            tide_recording_feed(r, piece, length);
            length = 0;
        }
    }
    return true;
}

/* {"text": ...} or {"base64": ...} */
static tide_recording *recording_of_request(call *c) {
    const tide_json *given = tide_json_at(c->request, "recording"), *text = tide_json_at(given, "text"),
                    *base64 = tide_json_at(given, "base64"), *one = text ? text : base64;
    tide_recording *r = TIDE_NEW(&c->arena, tide_recording, 1);
    tide_recording_init(r, &c->arena);
    if (one && one->kind == TIDE_JSON_STRING) {
        if (text) tide_recording_feed(r, text->text.at, text->text.length);
        if (text || feed_base64(r, base64->text)) {
            tide_recording_end(r);
            return r;
        }
    }
    tide_error(&c->diags, TIDE_ERR_REQUEST, "/recording", "a recording is {\"text\": ...} or {\"base64\": ...}", NULL);
    return NULL;
}

/* The recording at hand, or in the request. */
static bool find_recording(call *c) {
    if (!c->recording) c->recording = recording_of_request(c);
    if (!c->recording) return false;
    const tide_json *damage = tide_json_at(c->request, "damage"); /* what the caller saw go wrong while reading */
    if (damage && damage->kind == TIDE_JSON_STRING && (!c->recording->broken || c->recording->ends_early))
        c->recording->broken = tide_text_copy(c->recording->arena, damage->text);
    return true;
}

static int64_t recorded_device(const call *c) {
    const tide_json *device = tide_json_at(c->request, "device");
    return device && device->is_integer ? device->integer : -1;
}

static bool call_replay(call *c) {
    tide_text *words;
    uint32_t word_count;
    if (!read_words(c, &words, &word_count)) return false;
    const tide_job *job = tide_job_device(&c->arena, words, word_count, &c->diags);
    if (!job || !find_recording(c)) return false;
    open_answer(c);
    return tide_write_recorded(&c->writer, c->recording, job, recorded_device(c), &c->diags) ||
           (c->diags.error_count == 0 && out_of_memory(c));
}

static bool call_align(call *c) {
    tide_job *job = build_job(c);
    tide_run *run = TIDE_NEW(&c->arena, tide_run, 1);
    tide_replay_config config;
    uint32_t number;
    if (!run_job(c, run, job) || !find_recording(c)) return false;
    const tide_tape *tape = tide_recorded_tape(&config, c->recording, job, recorded_device(c), &number, &c->diags);
    if (!tape) return c->diags.error_count == 0 && out_of_memory(c);
    open_answer(c);
    if (!tide_write_alignment(&c->writer, run, &config, c->recording, tape)) return out_of_memory(c);
    tide_write_diagnostics(&c->writer, &c->diags, false);
    return true;
}
#endif

static bool read_question(call *c, tide_question *q, const char *key) {
    tide_text *words;
    tide_file *files;
    *q = (tide_question){.arena = &c->arena};
    bool is_job = strcmp(key, "settings") == 0;
    if (!(is_job ? read_words(c, &words, &q->word_count) : read_words_at(c, key, &words, &q->word_count)) || !read_files(c, &files, &q->file_count)) return false;
    q->words = words;
    q->files = files;
    return true;
}

static bool call_fit(call *c) {
    tide_question q;
    if (!read_question(c, &q, "settings")) return false;
    open_answer(c);
    return tide_write_fit(&c->writer, &q, text_at(c, "knob"), text_at(c, "by"), &c->diags);
}

static bool call_cards(call *c) {
    tide_question q;
    if (!read_question(c, &q, "settings")) return false;
    open_answer(c);
    return tide_write_cards(&c->writer, &q, &c->diags);
}

static bool call_advice(call *c) {
    tide_question q;
    if (!read_question(c, &q, "settings")) return false;
    open_answer(c);
    return tide_write_advice(&c->writer, &q, &c->diags);
}

static bool call_compare(call *c) {
    tide_question one, other;
    if (!read_question(c, &one, "settings") || !read_question(c, &other, "with")) return false;
    tide_text *words = NULL;
    if (c->link && other.word_count) other.word_count = tide_link_join(&c->arena, c->link, other.words, other.word_count, &words);
    if (words) other.words = words;
    if (!other.word_count && c->link && c->link->baseline_count) other.words = c->link->baseline, other.word_count = c->link->baseline_count;
    if (!other.word_count) other = one;
    open_answer(c);
    return tide_write_comparison(&c->writer, &one, &other, &c->diags);
}

static const struct {
    const char *name;
    bool (*run)(call *c);
} calls[] = {
#if TIDEMARK_RECORDINGS
             {"replay", call_replay}, {"align", call_align},
#endif
             {"version", call_version}, {"describe", call_describe}, {"estimate", call_estimate},
             {"measure", call_measure}, {"explain", call_explain},   {"link", call_link},
             {"read_link", call_read_link}, {"verify", call_verify},   {"fit", call_fit},
             {"cards", call_cards},     {"advice", call_advice},     {"compare", call_compare}};

static bool dispatch(call *c, tide_text request) {
    c->request = tide_json_parse(&c->arena, request, "", &c->diags);
    if (!c->request) return false;
    const tide_json *name = tide_json_at(c->request, "call");
    if (!name || name->kind != TIDE_JSON_STRING)
        return tide_error(&c->diags, TIDE_ERR_REQUEST, "/call", "a request is an object with \"call\"", "\"version\", \"describe\", \"estimate\", ...");
    const char *names[sizeof calls / sizeof *calls];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (tide_text_is(name->text, calls[i].name)) return calls[i].run(c);
        names[i] = calls[i].name;
    }
    const char *near = tide_nearest(name->text, names, sizeof calls / sizeof *calls);
    return tide_error(&c->diags, TIDE_ERR_REQUEST, "/call", "no such call", near ? tide_format(&c->arena, "did you mean \"%s\"?", near) : NULL);
}

static void write_failure(call *c) {
    tide_writer_init(&c->writer, &c->arena);
    tide_write_open(&c->writer, '{');
    tide_write_bool_at(&c->writer, "ok", false);
    tide_write_string_at(&c->writer, "tidemark", TIDEMARK_VERSION);
    tide_write_diagnostics(&c->writer, &c->diags, false);
}

/* What changes after setjmp is the caller's: a longjmp leaves it defined. */
static int answer(call *c, tide_text request, const tide_allocator *memory, char **response, size_t *response_len) {
    jmp_buf escape;
    tide_arena_init(&c->arena, *memory, &escape);
    tide_arena_init(&c->trial, *memory, &escape);
    if (c->recording) c->recording->arena->escape = &escape;
    if (setjmp(escape)) {
        tide_arena_free(&c->trial);
        tide_arena_free(&c->arena);
        return 2;
    }
    tide_diagnostics_init(&c->diags, &c->arena);
    bool ok = dispatch(c, request) && c->diags.error_count == 0;
    if (!ok) write_failure(c);
    tide_write_close(&c->writer, '}');
    char *copy = memory->resize(memory->user, NULL, 0, (size_t)c->writer.length + 1);
    if (copy) {
        memcpy(copy, c->writer.bytes, c->writer.length);
        copy[c->writer.length] = 0;
        *response = copy;
        *response_len = c->writer.length;
    }
    tide_arena_free(&c->trial);
    tide_arena_free(&c->arena);
    return !copy ? 2 : ok ? 0 : 1;
}

int tide_call(const char *request, size_t request_len, const tide_allocator *allocator, char **response, size_t *response_len) {
    tide_allocator memory = allocator ? *allocator : tide_default_allocator();
    call c;
    memset(&c, 0, sizeof c);
    *response = NULL;
    *response_len = 0;
    return answer(&c, (tide_text){request, request_len}, &memory, response, response_len);
}

void tide_free(const tide_allocator *allocator, char *response, size_t response_len) {
    tide_allocator memory = allocator ? *allocator : tide_default_allocator();
    if (response) memory.resize(memory.user, response, response_len + 1, 0);
}

/* ---- a recording in pieces ---- */

struct tide_recorded {
    tide_allocator memory;
    tide_arena arena;
    tide_recording recording;
    bool has_ended, has_failed;
};

int tide_recording_open(const tide_allocator *allocator, struct tide_recorded **recording) {
    tide_allocator memory = allocator ? *allocator : tide_default_allocator();
    jmp_buf escape;
    struct tide_recorded *made = *recording = memory.resize(memory.user, NULL, 0, sizeof *made);
    if (!made) return 2;
    memset(made, 0, sizeof *made);
    made->memory = memory;
    tide_arena_init(&made->arena, memory, &escape);
    if (setjmp(escape)) {
        tide_recording_free(*recording);
        *recording = NULL;
        return 2;
    }
    tide_recording_init(&made->recording, &made->arena);
    return 0;
}

int tide_recording_add(struct tide_recorded *r, const void *bytes, size_t length) {
    jmp_buf escape;
    if (r->has_failed || r->has_ended) return 2;
    r->arena.escape = &escape;
    if (setjmp(escape)) {
        r->has_failed = true;
        return 2;
    }
    tide_recording_feed(&r->recording, bytes, length);
    return 0;
}

static bool end_recording(struct tide_recorded *r) {
    jmp_buf escape;
    r->arena.escape = &escape;
    if (r->has_failed || setjmp(escape)) {
        r->has_failed = true;
        return false;
    }
    if (!r->has_ended) tide_recording_end(&r->recording);
    r->has_ended = true;
    return true;
}

int tide_recording_call(struct tide_recorded *r, const char *request, size_t request_len, char **response, size_t *response_len) {
    call c;
    memset(&c, 0, sizeof c);
    *response = NULL;
    *response_len = 0;
    if (!end_recording(r)) return 2;
    c.recording = &r->recording;
    return answer(&c, (tide_text){request, request_len}, &r->memory, response, response_len);
}

void tide_recording_free(struct tide_recorded *r) {
    if (!r) return;
    tide_allocator memory = r->memory;
    tide_arena_free(&r->arena);
    memory.resize(memory.user, r, sizeof *r, 0);
}
