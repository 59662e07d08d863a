/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out: each request of a call fails in turn, and then every one after it as well.
 *
 * A call answers with the bytes of the undisturbed one, or with status 2 and nothing; either way it
 * gives back every byte that it took.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tidemark/tidemark.h> /* and nothing else of the library: what a caller has */

/* ---- memory that counts, and that fails ---- */

typedef struct meter {
    size_t live_bytes, live_blocks, most_bytes;
    long requests;   /* of memory; giving back is none */
    long fail_from;  /* number of the request, from 1; 0: never */
    long fail_until; /* the last one that fails */
    bool is_wrong;   /* a size was stated that is not the block's */
} meter;

/* Each block knows its size, so that a wrong old_size is seen. */
typedef union head {
    size_t size;
    max_align_t align;
} head;

static void *meter_resize(void *user, void *ptr, size_t old_size, size_t new_size) {
    meter *m = user;
    head *old = ptr ? (head *)ptr - 1 : NULL;
    if ((old ? old->size : 0) != old_size) m->is_wrong = true;
    if (new_size == 0) {
        if (old) m->live_bytes -= old->size, m->live_blocks--;
        free(old);
        return NULL;
    }
    m->requests++;
    if (m->fail_from && m->requests >= m->fail_from && m->requests <= m->fail_until) return NULL;
    head *made = malloc(sizeof *made + new_size); /* always moved: a stale pointer is seen */
    if (!made) return NULL;
    made->size = new_size;
    if (old) {
        memcpy(made + 1, old + 1, old_size < new_size ? old_size : new_size);
        m->live_bytes -= old->size, m->live_blocks--;
        free(old);
    }
    m->live_bytes += new_size, m->live_blocks++;
    if (m->live_bytes > m->most_bytes) m->most_bytes = m->live_bytes;
    return made + 1;
}

/* ---- requests ---- */

#define LLAVA                                                                                                          \
    "\"model=llava-1.5-7b\",\"overrides.text_config.num_hidden_layers=1\","                                            \
    "\"overrides.vision_config.num_hidden_layers=2\""

static const struct {
    const char *name, *request;
    int status; /* of the undisturbed call */
} requests[] = {
    {"version", "{\"call\":\"version\"}", 0},
    {"describe", "{\"call\":\"describe\"}", 0},
    {"an empty request", "", 1},
    {"an event file",
     "{\"call\":\"replay\",\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"a part of a recording",
     "{\"call\":\"recorded_timeline\",\"from\":2,\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":"
     "\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"events of a recording",
     "{\"call\":\"recorded_events\",\"filter\":\"a\",\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":"
     "\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"the allocator of a recording",
     "{\"call\":\"recorded_state\",\"segment\":0,\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":"
     "\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"allocations of a recording",
     "{\"call\":\"recorded_bands\",\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":"
     "\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"live stacks of a recording",
     "{\"call\":\"recorded_live\",\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":"
     "\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"what grows in a recording",
     "{\"call\":\"recorded_growth\",\"recording\":{\"text\":\"{\\\"case\\\":{\\\"allocator\\\":"
     "\\\"expandable_segm"
     "ents:True\\\"},\\\"device_bytes\\\":100000000}\\n[\\\"a\\\",0,5000000,0]\\n[\\\"f\\\",0]\\n[\\\"a\\\""
     ",5000192,100,1]\\n[\\\"c\\\",0]\\n[\\\"s\\\",0,20971520,0]\\n[\\\"a\\\",0,30000000,0]\\n[\\\"f\\\",7"
     "]\\n[\\\"o\\\",0,999999999,0]\\n\"}}",
     0},
    {"a snapshot",
     "{\"call\":\"replay\",\"recording\":{\"base64\":\"gASVmAEAAAAAAAB9lCiMCHNlZ21lbnRzlF2UfZQo"
     "jAZkZXZpY2WUSwCMB2FkZHJlc3OUTQAQjAp0b3RhbF9zaXpllEoAACAAjAZzdHJlYW2USwCMBmJsb2Nr"
     "c5RdlH2UKGgFTQAQjARzaXpllE0AAowOcmVxdWVzdGVkX3NpemWUSwmMBXN0YXRllIwQYWN0aXZlX2Fs"
     "bG9jYXRlZJSMBmZyYW1lc5RdlCh9lCiMCGZpbGVuYW1llIwEYS5weZSMBGxpbmWUSwOMBG5hbWWUjAFm"
     "lHV9lChoEmgTaBRLCWgVjAFnlHVldWF1YYwNZGV2aWNlX3RyYWNlc5RdlF2UKH2UKIwGYWN0aW9ulIwF"
     "YWxsb2OUjARhZGRylE0AIGgLTbwCaAdLAGgPaBB1fZQoaB2MDmZyZWVfcmVxdWVzdGVklGgfTQAgaAtN"
     "vAJoB0sAaA9dlHV9lChoHYwOZnJlZV9jb21wbGV0ZWSUaB9NACBoC028AmgHSwBoD12UdX2UKGgdaB5o"
     "H4oGAAAAAAABaAtKAAAwAGgHSwBoD2gQdWVhdS4=\"}}",
     0},
    {"a trace of a run without a GPU",
     "{\"call\":\"replay\",\"recording\":{\"text\":\"[{\\\"ph\\\":\\\"X\\\",\\\"cat\\\":\\\"cpu_op\\\",\\\"name\\\""
     ":\\\"aten::mm\\\",\\\"ts\\\":1,\\\"dur\\\":5,\\\"pid\\\":1,\\\"tid\\\":1},{\\\"name\\\":\\\"[memory]\\\",\\\"t"
     "s\\\":2,\\\"pid\\\":1,\\\"tid\\\":1,\\\"args\\\":{\\\"Bytes\\\":4096,\\\"Addr\\\":512,\\\"Device Type\\\":"
     "0,\\\"Device Id\\\":-1}},{\\\"ph\\\":\\\"X\\\",\\\"cat\\\":\\\"cpu_op\\\",\\\"name\\\":\\\"aten::mm\\\",\\\"ts"
     "\\\":9,\\\"dur\\\":5,\\\"pid\\\":1,\\\"tid\\\":1}]\"}}",
     0},
    {"no such call", "{\"call\":\"estimat\"}", 1},
    {"gpt2", "{\"call\":\"estimate\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=2\"]}", 0},
    {"gpt2 with dropout, eager, accumulated",
     "{\"call\":\"estimate\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=2\",\"attention="
     "eager\","
     "\"grad_accum=2\",\"padding=true\",\"clip=1\",\"dtype=fp32\",\"autocast=fp16\",\"scaler="
     "true\","
     "\"param_groups=trainer\"]}",
     0},
    {"gpt2 that does not fit",
     "{\"call\":\"estimate\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=2\",\"gpu_gib=0.25\"]"
     "}",
     0},
    {"gpt2 with expandable segments",
     "{\"call\":\"estimate\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\",\"gpu=h100-80\","
     "\"allocator=expandable_segments:True,roundup_power2_divisions:4\"]}",
     0},
    {"llava, checkpointed", "{\"call\":\"estimate\",\"settings\":[" LLAVA ",\"checkpointing=full\",\"gpu=h100-80\"]}",
     0},
    {"llava, reentrant, frozen",
     "{\"call\":\"estimate\",\"settings\":[" LLAVA ",\"checkpointing=full_reentrant\","
     "\"freeze=vision_tower\",\"load=warmup\"]}",
     0},
    {"llava, explained", "{\"call\":\"explain\",\"settings\":[" LLAVA "],\"of\":\"activations\"}", 0},
    {"compared",
     "{\"call\":\"compare\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\"],\"with\":[\"model=gpt2\","
     "\"overrides.n_layer=1\",\"batch=2\"]}",
     0},
    {"events of a job",
     "{\"call\":\"events\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\"],\"count\":500,\"filter\":\"attn\"}",
     0},
    {"the allocator of a job",
     "{\"call\":\"state\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\"],\"segment\":2097152}", 0},
    {"blocks", "{\"call\":\"explain\",\"stage\":\"blocks\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\"]}", 0},
    {"events", "{\"call\":\"explain\",\"stage\":\"events\",\"settings\":[\"model=gpt2\",\"overrides.n_layer=1\"]}", 0},
    {"a link", "{\"call\":\"link\",\"settings\":[\"model=gpt2\",\"batch=4\",\"seq=1024\"]}", 0},
    {"a case",
     "{\"call\":\"verify\",\"case\":{\"model\":\"gpt2\",\"overrides\":{\"n_layer\":1},\"batch\":1,"
     "\"seq\":64}}",
     0},
    {"a case without a word", "{\"call\":\"verify\",\"case\":{\"nonsense\":true}}", 0},
    {"a job with many faults",
     "{\"call\":\"estimate\",\"settings\":[\"batch=0\",\"seq=x\",\"nonsense=1\",\"gpu=h1000\","
     "\"model=gpt\"]}",
     1},
    {"a configuration without sense",
     "{\"call\":\"estimate\",\"files\":[{\"name\":\"config.json\",\"text\":\"{\\\"model_type\\\":"
     "\\\"llama\\\","
     "\\\"hidden_size\\\":100,\\\"num_attention_heads\\\":7}\"}]}",
     1},
    {"a configuration that is cut off",
     "{\"call\":\"estimate\",\"files\":[{\"name\":\"config.json\",\"text\":\"{\\\"model_type\\\":"
     "\"}]}",
     1},
};

/* ---- checks ---- */

static int passed, failed;

/* One call with requests [from, until] failing; false when something is wrong. */
static bool call_once(const char *request, const char *expected, size_t expected_length, int expected_status, long from,
                      long until, long *made, const char **complaint) {
    meter m = {.fail_from = from, .fail_until = until};
    struct tide_allocator hook = {meter_resize, &m};
    char *response = NULL;
    size_t length = 1;
    int status = tide_call(request, strlen(request), &hook, &response, &length);
    *complaint = NULL;
    if (status == 2) {
        if (response || length) *complaint = "status 2 with an answer";
        if (from == 0 || m.requests < from) *complaint = "status 2, and no request failed";
    } else if (!response) {
        *complaint = "no answer, and the status is not 2";
    } else if (status != expected_status) {
        *complaint = "another status than the undisturbed call's";
    } else if (expected && (length != expected_length || memcmp(response, expected, length) != 0)) {
        *complaint = "another answer than the undisturbed call's";
    }
    tide_free(&hook, response, length);
    if (m.live_bytes || m.live_blocks) *complaint = "memory is left";
    if (m.is_wrong) *complaint = "a size was stated that is not the block's";
    *made = m.requests;
    return !*complaint;
}

/* Every request up to `dense`, then `sparse` more at equal distances. */
enum { DENSE = 120, SPARSE = 60 };

static void check(const char *name, const char *request, int status) {
    meter m = {0};
    struct tide_allocator hook = {meter_resize, &m};
    char *expected = NULL;
    const char *complaint;
    size_t expected_length = 0;
    int got = tide_call(request, strlen(request), &hook, &expected, &expected_length);
    if (got != status || !expected) {
        printf("FAIL %s: status %d: %.*s\n", name, got, (int)(expected_length < 300 ? expected_length : 300),
               expected ? expected : "");
        failed++;
        tide_free(&hook, expected, expected_length);
        return;
    }
    long all = m.requests, made, fails = 0, ran_out = 0;
    long stride = all > DENSE + SPARSE ? (all - DENSE) / SPARSE : 1;
    for (long k = 1; k <= all; k += k < DENSE || k + stride > all ? 1 : stride)
        for (int lasts = 0; lasts < 2; lasts++) {
            if (!call_once(request, expected, expected_length, status, k, lasts ? all + 1000 : k, &made, &complaint) &&
                fails++ < 5)
                printf("FAIL %s: request %ld of %ld%s: %s\n", name, k, all, lasts ? " and all after it" : "",
                       complaint);
            ran_out++;
        }
    if (!call_once(request, expected, expected_length, status, 0, 0, &made, &complaint)) {
        printf("FAIL %s: again: %s\n", name, complaint);
        fails++;
    }
    tide_free(&hook, expected, expected_length);
    if (m.live_bytes) {
        printf("FAIL %s: %zu bytes left\n", name, m.live_bytes);
        fails++;
    }
    if (fails)
        failed++;
    else
        passed++;
}

/* A job whose scans save a million tensors is answered in less than 256 MiB. */
static void check_bound(void) {
    static const char job[] = "{\"call\":\"estimate\",\"settings\":[\"model=falcon-mamba-7b\",\"seq=8192\"]}";
    meter m = {0};
    struct tide_allocator hook = {meter_resize, &m};
    char *answer = NULL;
    size_t length = 0;
    int status = tide_call(job, sizeof job - 1, &hook, &answer, &length);
    bool is_right = status == 0 && m.most_bytes < (size_t)256 << 20;
    if (!is_right) printf("FAIL scans: status %d, %zu bytes\n", status, m.most_bytes);
    *(is_right ? &passed : &failed) += 1;
    tide_free(&hook, answer, length);
}

int main(void) {
    check_bound();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        check(requests[i].name, requests[i].request, requests[i].status);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
