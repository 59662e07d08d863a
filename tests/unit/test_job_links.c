/* SPDX-License-Identifier: Apache-2.0 */
/* Rows, links, what describe says, and hostile words. Failures point to core/src/job/. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job_builder.h"

/* ---- rows and link ---- */

static void test_link(void) {
    begin_job("the link holds what differs from the defaults, encoded as little as can be");
    LINK("batch=1|seq=512|model=gpt2|dtype=bf16", "model=gpt2&v=1");
    LINK("dtype=fp32|batch=4|model=gpt2|gpu=t4", "model=gpt2&gpu=t4&batch=4&dtype=fp32&v=1");
    LINK("gpt2|title=50% a+b & #1 \xc3\xa9", "model=gpt2&title=50%25%20a%2Bb%20%26%20%231%20%C3%A9&v=1");
    LINK("gpt2|overrides.x={\"a\":[1,\"b\"]}|batch=2",
         "model=gpt2&batch=2&overrides.x=%7B%22a%22:%5B1,%22b%22%5D%7D&v=1");
    LINK("gpt2|overrides.n_layer=12", "model=gpt2&overrides.n_layer=12&v=1");
    LINK("gpt2|trainer=reward|lora.r=8",
         "model=gpt2&adapter=lora&adapter.r=8&adapter.modules_to_save=score&trainer=reward&v=1");
    LINK("gpt2|trainer=reward|adapter=none", "model=gpt2&trainer=reward&v=1");
    tide_job *job = build("gpt2|batch=1");
    CHECK(job && origin(job, "batch") == TIDE_ORIGIN_USER && origin(job, "seq") == TIDE_ORIGIN_DEFAULT);
    CHECK(job && strcmp(job->rows[0].name, "model") == 0 && strcmp(job->rows[1].name, "recipe") == 0);
    end_job();
}

static uint64_t seed = 1;

static uint32_t dice(uint32_t sides) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % sides;
}

static const char *pick(const char *const *list) {
    uint32_t count = 0;
    while (list[count]) count++;
    return list[dice(count)];
}

/* Printable text with what links and JSON care about. */
static const char *noise(char *into, uint32_t most) {
    static const char *const pieces[] = {
        "a", "B", "7", " ", "%", "&", "#",   "+", "=", "\xc3\xa9",         "\"",   "\\",
        "{", "]", ",", ":", "~", "/", "%41", "|", "'", "\xf0\x9f\x8c\x8a", "\xff", NULL};
    into[0] = 0;
    for (uint32_t i = dice(most); i > 0; i--) strcat(into, pick(pieces));
    return into;
}

static tide_text random_word(const char *name) {
    static const char *const optimizers[] = {"adamw",        "adamw_fused", "adam", "sgd",
                                             "sgd_momentum", "rmsprop",     "none", NULL};
    static const char *const dtypes[] = {"bf16", "fp16", "fp32", NULL}, *const casts[] = {"none", "bf16", "fp16", NULL},
                             *const bools[] = {"true", "false", "1", "no", NULL},
                             *const kernels[] = {"flash", "efficient", "math", "cudnn", "default", NULL},
                             *const checks[] = {"none", "full", "full_reentrant", NULL},
                             *const cards[] = {"t4", "h100-80", "", "H100 80GB PCIe", NULL},
                             *const numbers[] = {"0.5", "1", "0.000123", "1e-2", "", ".25", "0.10", NULL},
                             *const confs[] = {"", "expandable_segments:True", "max_split_size_mb:128",
                                               "roundup_power2_divisions:[1:8,16:4,>:1]", NULL},
                             *const values[] = {"4",
                                                "0.1",
                                                "true",
                                                "null",
                                                "[1, 2, {\"a\": \"b c\"}]",
                                                "\"4\"",
                                                "1e-5",
                                                "1e300",
                                                "0.30000000000000004",
                                                "-7",
                                                "plain",
                                                "1.2.3",
                                                " 5 ",
                                                "\"\\u00e9\\n\"",
                                                "123456789012345678901",
                                                "-0.0",
                                                NULL};
    char text[256], other[256];
    if (strcmp(name, "dtype") == 0) return tide_text_of(tide_format(&arena, "dtype=%s", pick(dtypes)));
    if (strcmp(name, "autocast") == 0) return tide_text_of(tide_format(&arena, "autocast=%s", pick(casts)));
    if (strcmp(name, "sdpa_backend") == 0) return tide_text_of(tide_format(&arena, "sdpa_backend=%s", pick(kernels)));
    if (strcmp(name, "checkpointing") == 0) return tide_text_of(tide_format(&arena, "checkpointing=%s", pick(checks)));
    if (strcmp(name, "optimizer") == 0) return tide_text_of(tide_format(&arena, "optimizer=%s", pick(optimizers)));
    if (strcmp(name, "gpu") == 0) return tide_text_of(tide_format(&arena, "gpu=%s", pick(cards)));
    if (strcmp(name, "allocator") == 0) return tide_text_of(tide_format(&arena, "allocator=%s", pick(confs)));
    if (strcmp(name, "title") == 0 || strcmp(name, "freeze") == 0 || strcmp(name, "train_only") == 0)
        return tide_text_of(tide_format(&arena, "%s=%s", name, noise(text, 12)));
    if (strcmp(name, "batch") == 0 || strcmp(name, "seq") == 0 || strcmp(name, "grad_accum") == 0)
        return tide_text_of(tide_format(&arena, "%s=%u", name, 1 + dice(5000)));
    if (strcmp(name, "images") == 0) return tide_text_of(tide_format(&arena, "images=%u", dice(9)));
    if (strcmp(name, "image_size") == 0)
        return tide_text_of(tide_format(&arena, "image_size=%ux%u", 1 + dice(999), 1 + dice(999)));
    if (strcmp(name, "steps") == 0) return tide_text_of(tide_format(&arena, "steps=%u", 1 + dice(8)));
    if (strcmp(name, "capability") == 0) return tide_text_of(tide_format(&arena, "capability=%u", 75 + 5 * dice(4)));
    if (strcmp(name, "clip") == 0 || strcmp(name, "dropout") == 0 || strcmp(name, "gpu_gib") == 0 ||
        strcmp(name, "memory_fraction") == 0) {
        const char *number = pick(numbers);
        bool is_small = strcmp(name, "gpu_gib") == 0 && strcmp(number, "0.000123") == 0;
        return tide_text_of(tide_format(&arena, "%s=%s", name, is_small ? "8.7" : number));
    }
    if (strcmp(name, "overrides") == 0) {
        const char *value = pick(values);
        for (char *c = strcpy(other, noise(text, 6)); *c; c++)
            if (*c == '=' || *c == '.') *c = '_';
        if (dice(3) == 0) {
            noise(text, 8);
            if (text[0] != '{' && text[0] != '[' && text[0] != '"' && text[0] != ' ') value = text;
        }
        return tide_text_of(
            tide_format(&arena, "overrides.k%u%s%s=%s", dice(1u << 30), other, dice(2) ? ".sub" : "", value));
    }
    return tide_text_of(tide_format(&arena, "%s=%s", name, pick(bools)));
}

static uint32_t words_of_link(tide_text *words, uint32_t limit, const char *link) {
    uint32_t count = 0;
    while (*link && count < limit) {
        size_t length = strcspn(link, "&"), at = 0;
        char *word = tide_arena_alloc(&arena, length + 1);
        for (size_t i = 0; i < length; i++) {
            unsigned byte;
            if (link[i] == '%' && sscanf(link + i + 1, "%2x", &byte) == 1)
                i += 2;
            else
                byte = (unsigned char)link[i];
            word[at++] = (char)byte;
        }
        words[count++] = (tide_text){word, at};
        link += length + (link[length] == '&');
    }
    return count;
}

static void test_round_trip(void) {
    static const char *const names[] = {
        "gpu",        "batch",        "seq",          "images",    "image_size", "labels",          "padding",
        "dtype",      "autocast",     "scaler",       "optimizer", "freeze",     "train_only",      "checkpointing",
        "grad_accum", "clip",         "sdpa_backend", "use_cache", "gpu_gib",    "memory_fraction", "allocator",
        "capability", "hold_outputs", "dropout",      "steps",     "overrides",  "overrides",       "title"};
    enum { ROUNDS = 2000, NAMES = sizeof names / sizeof *names };
    int built = 0;
    begin_job("the words of a job's own link give the same rows (2000 random jobs)");
    for (int round = 0; round < ROUNDS; round++) {
        tide_text words[NAMES + 1], again[64];
        uint32_t count = 1;
        words[0] = TIDE_TEXT("model=gpt2");
        for (uint32_t i = 0; i < NAMES; i++)
            if (dice(2)) words[count++] = random_word(names[i]);
        tide_job *job = build_texts(words, count, NULL, 0);
        if (!job) {
            for (uint32_t i = 0; i < diags.count; i++)
                if (diags.items[i].severity == TIDE_ERROR)
                    complain(__LINE__, "%s: %s", diags.items[i].place, diags.items[i].message);
        } else {
            built++;
            tide_job *same = build_texts(again, words_of_link(again, 64, job->link), NULL, 0);
            CHECK(same && same->row_count == job->row_count && strcmp(same->link, job->link) == 0);
            for (uint32_t i = 0; same && i < job->row_count && i < same->row_count; i++)
                if (strcmp(job->rows[i].name, same->rows[i].name) != 0 ||
                    strcmp(job->rows[i].value, same->rows[i].value) != 0)
                    complain(__LINE__, "%s=%s became %s=%s", job->rows[i].name, job->rows[i].value, same->rows[i].name,
                             same->rows[i].value);
            if (same)
                CHECK(same->device_bytes == job->device_bytes && same->capability == job->capability &&
                      same->freeze.count == job->freeze.count);
            if (!same && diags.count)
                complain(__LINE__, "%s: %s %s", job->link, diags.items[0].place, diags.items[0].message);
        }
        tide_arena_free(&arena);
    }
    CHECK(built > ROUNDS / 2);
    end_job();
}

/* ---- describe ---- */

static void test_describe(void) {
    begin_job("describe lists settings, models and GPUs");
    tide_writer writer;
    tide_writer_init(&writer, &arena);
    tide_write_open(&writer, '{');
    tide_job_describe(&arena, &writer, false);
    tide_write_close(&writer, '}');
    tide_json *said = tide_json_parse(&arena, (tide_text){writer.bytes, writer.length}, "", &diags);
    CHECK(said);
    const tide_json *settings = tide_json_at(said, "settings"), *models = tide_json_at(said, "models"),
                    *gpus = tide_json_at(said, "gpus");
    CHECK(settings && settings->count > 30 && models && models->count == 4 && gpus && gpus->count == 3);
    for (const tide_json *s = settings ? settings->first : NULL; s; s = s->next) {
        CHECK(tide_json_at(s, "name") && tide_json_at(s, "type") && tide_json_at(s, "default") &&
              tide_json_at(s, "help") && tide_json_at(s, "aliases"));
        static const char *const groups[] = {"model",  "batch",    "precision", "training", "attention", "inference",
                                             "memory", "advanced", "parallel",  "adapter",  "serving"};
        CHECK(tide_json_at(s, "title") && tide_json_at(s, "read"));
        bool is_group = false;
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            is_group |= tide_text_is(tide_json_at(s, "group")->text, groups[i]);
        CHECK(is_group);
        if (tide_text_is(tide_json_at(s, "name")->text, "optimizer"))
            CHECK(tide_json_at(s, "choices")->count == TIDE_optimizer_COUNT);
        if (tide_text_is(tide_json_at(s, "name")->text, "quant.double"))
            CHECK(tide_json_at(tide_json_at(s, "when"), "choices")->count == 2);
        if (tide_text_is(tide_json_at(s, "name")->text, "use_cache"))
            CHECK(tide_json_is_text(tide_json_at(s, "choices")->first->next, "true"));
        if (tide_text_is(tide_json_at(s, "name")->text, "dtype")) CHECK(tide_json_at(s, "choices")->count == 4);
    }
    CHECK(models && tide_text_is(tide_json_at(models->first, "model_type")->text, "gpt2"));
    CHECK(gpus && tide_json_at(gpus->first, "bytes")->integer == 15642329088);
    end_job();
}

static void test_server(void) {
    begin_job("mode=serve has the engine's settings, and the short names that it shares");
    tide_job *job = build("gpt2|tp=2|gpus=4|mode=serve|gpu=t4|max-model-len=auto|rank=1|batch=4");
    CHECK(job && job->tensor_parallel_size == 4 && job->parallel_tp == 1 && job->parallel_dp == 1 &&
          job->max_model_len == -1 && job->worker_rank == 1 && !job->dtype.is_set);
    CHECK(job && strcmp(row(job, "dtype"), "auto") == 0 && find(TIDE_WARNING, "/settings/batch"));
    CHECK(job && strcmp(job->link, "model=gpt2&gpu=t4&mode=serve&max_model_len=-1&tensor_parallel_size=4&worker_rank=1"
                                   "&v=1") == 0);
    job = build("gpt2|parallel.kind=ddp|gpus=4");
    CHECK(job && job->parallel_dp == 4 && job->tensor_parallel_size == 1);
    end_job();
}

static void test_server_command(void) {
    begin_job("`vllm serve` in a script, whatever the shell is written like");
    tide_job *job = build_file("gpu=t4", "a.sh", "FOO=1 vllm serve --enforce-eager gpt2 -tp 2 2>&1 | tee log\n");
    CHECK(job && job->mode == TIDE_mode_serve && job->enforce_eager && job->tensor_parallel_size == 2 &&
          strcmp(job->model, "gpt2") == 0);
    job = build_file("gpu=t4|max_num_seqs=8", "a.sh",
                     "# vllm serve llama\npython -m vllm.entrypoints.openai.api_server \\\n --model 'gpt2' "
                     "--max-num-seqs=64 --max-model-len 0.5k");
    CHECK(job && job->max_num_seqs == 8 && job->max_model_len == 500);
    CHECK(!build_file("gpu=t4", "a.sh", "echo vllm serve") && diags.error_count);
    CHECK(!build_file("gpu=t4", "a.sh", "vllm serve \"gpt2 --x 'y\\") && find(TIDE_ERROR, "/files/0/model"));
    CHECK(!build_file("gpu=t4", "a.sh", "vllm serve gpt2 --max-model-len 99999999999999999999k") &&
          find(TIDE_ERROR, "/files/0/max_model_len"));
    CHECK(build_file("gpu=t4", "a.sh", "vllm serve gpt2 -- --=3 - --tp=") && find(TIDE_WARNING, "/files/0"));
    enum { MANY = 1 << 19 };
    static char script[MANY];
    memcpy(script, "vllm serve gpt2 ", 16);
    for (int i = 16; i < MANY - 1; i++) script[i] = i % 2 ? ' ' : 'x';
    CHECK(build_file("gpu=t4", "a.sh", script));
    job = build_file("gpu=t4", "c.json",
                     "{\"services\": {\"a\": {\"image\": \"vllm/vllm-openai\", \"command\": [\"--model\", \"gpt2\", "
                     "\"--enable-lora\", \"--lora-modules\", null, {}]}}}");
    CHECK(job && job->enable_lora);
    CHECK(!build_file("gpu=t4", "c.json", "{\"apiVersion\": 1, \"kind\": [{\"command\": [\"vllm\", \"serve\"]}]}"));
    end_job();
}

/* ---- hostile ---- */

static void test_hostile(void) {
    begin_job("hostile words are refused in one line");
    enum { MANY = 1 << 20 };
    static char big[MANY];
    static const char *const keys[] = {
        "",      "model=",     "batch=",      "title=", "freeze=", "allocator=",    "overrides.x=",   "gpu=",
        "clip=", "overrides.", "image_size=", "dtype=", "v=",      "overrides.x=[", "overrides.x=\"", NULL};
    static const char fills[] = {'a', '9', '=', ',', '[', '.', ' ', '%', 0, '\n', '\xff', '-'};
    for (size_t k = 0; keys[k]; k++)
        for (size_t f = 0; f < sizeof fills; f++) {
            size_t length = strlen(keys[k]);
            memset(big, fills[f], sizeof big);
            memcpy(big, keys[k], length);
            tide_text words[] = {TIDE_TEXT("model=gpt2"), {big, sizeof big}};
            build_texts(words, 2, NULL, 0);
            for (uint32_t i = 0; i < diags.count; i++)
                CHECK(strlen(diags.items[i].message) < 600 && strlen(diags.items[i].place) < 300);
            tide_arena_free(&arena);
        }
    tide_text zero[] = {TIDE_TEXT("model=gpt2"), TIDE_TEXT("title=a\0b")};
    CHECK(!build_texts(zero, 2, NULL, 0) && says(TIDE_ERROR, "/settings", "zero byte"));
    CHECK(!build_texts(NULL, 0, NULL, 0) && diags.error_count == 1);
    tide_text *many = TIDE_NEW(&arena, tide_text, 10000);
    for (int i = 0; i < 10000; i++) many[i] = TIDE_TEXT("overrides.a=1");
    CHECK(!build_texts(many, 10000, NULL, 0) && says(TIDE_ERROR, "/settings", "4096 words"));
    for (int i = 0; i < 300; i++) many[i] = tide_text_of(tide_format(&arena, "overrides.a%d=1", i));
    CHECK(!build_texts(many, 300, NULL, 0) && diags.first_error == TIDE_ERR_LIMIT);
    tide_file *files = TIDE_NEW(&arena, tide_file, 600);
    CHECK(!build_texts(many, 1, files, 600) && says(TIDE_ERROR, "/files", "512 files"));
    end_job();
}

static void test_random_bytes(void) {
    static const char *const heads[] = {"",      "model=",      "batch=",  "overrides.a=", "overrides.layers.",
                                        "clip=", "image_size=", "freeze=", "allocator=",   "gpu=",
                                        "=",     NULL};
    static const char bytes[] = "0123456789.eE+-x,:[]{}\"'=ab \t%&#~/\\\x80\xff";
    begin_job("random words and files end in an answer or an error");
    for (int round = 0; round < 20000; round++) {
        char text[3][80];
        tide_text words[3];
        for (int k = 0; k < 3; k++) {
            strcpy(text[k], pick(heads));
            size_t length = strlen(text[k]);
            for (uint32_t i = dice(30); i > 0; i--) text[k][length++] = bytes[dice(sizeof bytes)];
            words[k] = (tide_text){text[k], length};
        }
        tide_file file = {words[1], words[2]};
        bool has_file = dice(4) == 0;
        tide_job *job = build_texts(words, 1 + dice(3), has_file ? &file : NULL, has_file);
        CHECK(job ? diags.error_count == 0 : diags.error_count > 0);
        tide_arena_free(&arena);
    }
    end_job();
}

static void test_memory(void) {
    begin_job("memory may run out at any request, and nothing is left behind");
    static const char *const jobs[] = {
        ("model=gpt2|batch=4|gpu=t4|overrides.deep.x=[1,2,\"three\"]|overrides.y=\"4\"|freeze=a,b,c|"
         "dropout=0.1|allocator=expandable_segments:True"),
        "model=gtp2|bacth=4|gpu=t5|overrides.x=[1|optimizer=adm", "llava-1.5-7b|title=x"};
    static char wide[100000]; /* more than one block of the arena */
    volatile long failures = 0;
    memset(wide, 'a', sizeof wide);
    memcpy(wide, "overrides.wide=", 15);
    for (volatile size_t k = 0; k < 3; k++)
        for (volatile long at = 1; at < 2000; at++) {
            volatile bool is_done = false;
            tide_arena_init(&arena, (tide_allocator){counting_resize, NULL}, &escape);
            requests = 0;
            fail_at = at;
            if (setjmp(escape) == 0) {
                tide_text words[64];
                uint32_t count = cut(words, 63, jobs[k]);
                words[count++] = (tide_text){wide, sizeof wide};
                tide_file file = {TIDE_TEXT("p.json"), TIDE_TEXT("{\"crop_size\": 3}")};
                build_texts(words, count, &file, 1);
                is_done = true;
            } else {
                failures++;
            }
            fail_at = 0;
            tide_arena_free(&arena);
            if (live_bytes) complain(__LINE__, "%zu bytes left after request %ld", live_bytes, (long)at);
            if (is_done) break;
        }
    CHECK(failures > 20);
    end_job();
}

int main(void) {
    test_link();
    test_round_trip();
    test_describe();
    test_server();
    test_server_command();
    test_hostile();
    test_random_bytes();
    test_memory();
    return report_tests();
}
