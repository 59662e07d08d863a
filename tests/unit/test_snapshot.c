/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's own recordings: snapshots of its allocator as pickles, traces of its profiler as JSON. A failure points
 * to core/src/trace/.
 *
 *     test_snapshot RECORDINGS_FOLDER */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "recording_reader.h"

static const char *recordings;

static bytes read_recording(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", recordings, name);
    return read_gz(path);
}

/* expected.jsonl: what torch.cuda.memory_stats() said when the recording was made. */
static void test_recordings(void) {
    char path[1024], line[4096];
    int count = 0;
    snprintf(path, sizeof path, "%s/expected.jsonl", recordings);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        cJSON *want = cJSON_Parse(line);
        const char *name = cJSON_GetStringValue(at(want, "file"));
        begin(name ? name : "expected.jsonl");
        bytes recording = read_recording(name ? name : "");
        cJSON *have = replay(&recording, "");
        same_figures(have, want);
        CHECK(is_true(at(have, "recording"), "is_whole"));
        EQUAL(number(at(have, "recording"), "before") > 0, is_true(want, "begins_late"));
        cJSON_Delete(have);
        cJSON_Delete(want);
        free(recording.at);
        end();
        count++;
    }
    begin("tests/recordings is there");
    CHECK(count > 0);
    if (file) fclose(file);
    end();
}

static void test_frames(void) {
    begin("what is live at the peak is told by Python frame and size");
    bytes file = read_recording("snapshot-plain.pickle.gz");
    cJSON *answer = replay(&file, "");
    const cJSON *first = cJSON_GetArrayItem(at(answer, "live_at_peak"), 0);
    CHECK(strcmp(cJSON_GetStringValue(at(first, "frame")), "snap.py:11 train") == 0);
    EQUAL(number(first, "bytes"), 128 << 20);
    EQUAL(number(first, "count"), 8);
    uint64_t sum = 0;
    const cJSON *group;
    cJSON_ArrayForEach(group, at(answer, "live_at_peak")) sum += number(group, at(group, "rest") ? "rest" : "bytes");
    EQUAL(sum, number(answer, "allocated_peak"));
    cJSON_Delete(answer);
    free(file.at);
    end();
}

static void test_damaged_snapshots(void) {
    bytes file = read_recording("snapshot-streams.pickle.gz");
    begin("a snapshot cut anywhere gives what stands before the cut, and says so");
    cut_anywhere(&file, 491);
    bytes part = {.at = file.at, .length = file.length * 9 / 10};
    cJSON *answer = replay(&part, "");
    CHECK(is_true(answer, "ok") && number(answer, "reserved_peak") > 20 << 20);
    cJSON_Delete(answer);
    end();
    begin("a snapshot with a flipped bit is answered, whatever it says");
    flip_bits(&file, 997);
    free(file.at);
    end();
}

static void test_hostile_pickles(void) {
    static const struct {
        const char *name, *bytes, *says;
        size_t length;
    } rows[] = {{"GLOBAL",
                 "\x80\x04"
                 "cos\nsystem\n",
                 "opcode GLOBAL", 13},
                {"STACK_GLOBAL", "\x80\x04\x8c\x02os\x8c\x06system\x93", "opcode STACK_GLOBAL", 15},
                {"REDUCE", "\x80\x04)R.", "opcode REDUCE", 5},
                {"BUILD", "\x80\x04}b......", "opcode BUILD", 10},
                {"NEWOBJ", "\x80\x04)\x81.....", "opcode NEWOBJ", 9},
                {"INST", "\x80\x04(ios\nx\n", "opcode INST", 9},
                {"PERSID", "\x80\x04Pxxxxxxx", "opcode PERSID", 10},
                {"a list that holds itself",
                 "\x80\x04]\x94h\x00"
                 "a.",
                 "contains no allocations", 8},
                {"a dict that holds itself", "\x80\x04}\x94K\x01h\x00s.", "contains no allocations", 10},
                {"a text of 2^63 bytes", "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "512 KiB", 11},
                {"a number of 2 GiB", "\x80\x04\x8b\xff\xff\xff\x7fxxxx", "512 KiB", 11},
                {"a place in the memo that is not there", "\x80\x04j\xff\xff\xff\xff.", "has not been said", 8},
                {"a place in the memo that is far", "\x80\x04}r\xfe\xff\xff\xff.", "contains no allocations", 9},
                {"APPENDS on nothing", "\x80\x04(e......", "needs more values", 10},
                {"SETITEM on nothing", "\x80\x04s.......", "needs more values", 10},
                {"POP beyond a mark", "\x80\x04](0.....", "needs more values", 10},
                {"no opcode", "\x80\x04\xff.......", "no opcode of pickle: 0xff", 10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin(rows[i].name);
        cJSON *answer = replay_pieces(rows[i].bytes, rows[i].length, 1 << 20, "");
        CHECK(!is_true(answer, "ok"));
        if (!says(answer, rows[i].says)) complain(__LINE__, "does not say \"%s\"", rows[i].says);
        cJSON_Delete(answer);
        end();
    }
    begin("a million marks, a million values");
    for (int which = 0; which < 2; which++) {
        bytes deep = {.at = malloc(1000000), .length = 1000000};
        memset(deep.at, which ? 'N' : '(', deep.length);
        memcpy(deep.at, "\x80\x04", 2);
        cJSON *answer = replay(&deep, "");
        CHECK(says(answer, which ? "more values at once" : "nested deeper"));
        cJSON_Delete(answer);
        free(deep.at);
    }
    end();
}

static void test_traces(void) {
    begin("a run without a GPU is an estimate, and says what it puts right");
    bytes file = read_recording("trace-cpu.json.gz");
    cJSON *answer = replay(&file, "");
    CHECK(is_true(at(answer, "recording"), "is_estimate"));
    CHECK(cJSON_GetArraySize(at(answer, "differences")) >= 4);
    cJSON_Delete(answer);
    end();
    begin("cuBLAS takes less on a GPU before Hopper, and the estimate follows");
    answer = replay(&file, "\"gpu=h100-80\"");
    cJSON *older = replay(&file, "\"gpu=a100-80\"");
    CHECK(number(answer, "reserved_peak") > number(older, "reserved_peak"));
    cJSON_Delete(answer);
    cJSON_Delete(older);
    end();
    begin("a trace cut anywhere gives what stands before the cut, and says so");
    cut_anywhere(&file, 17321);
    end();
    begin("a trace with a flipped bit is answered, whatever it says");
    flip_bits(&file, 51117);
    free(file.at);
    end();
    begin("a trace that is an array, keys in another order, numbers in quotes, blanks and escapes");
    static const char odd[] =
        " [ {\"args\":{\"Bytes\":\"1024\",\"Addr\":77,\"Device Type\":1,\"Device "
        "Id\":0},\"name\":\"[memory]\",\"ts\":2.5,\"pid\":1,\"tid\":1,"
        "\"ph\":\"i\"},\n\t{\"name\":\"a \\\" } ] "
        "\\\\\",\"ph\":\"X\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":9,\"pid\":1,\"tid\":\"1\"} ] \n ";
    for (size_t piece = 1; piece < sizeof odd; piece += 50) {
        answer = replay_pieces(odd, sizeof odd - 1, piece, "");
        CHECK(is_true(answer, "ok") && is_true(at(answer, "recording"), "is_whole"));
        EQUAL(number(answer, "allocated_peak"), 1024);
        cJSON_Delete(answer);
    }
    end();
}

int main(int argc, char **argv) {
    recordings = argc > 1 ? argv[1] : "tests/recordings";
    test_recordings();
    test_frames();
    test_damaged_snapshots();
    test_hostile_pickles();
    test_traces();
    return report_tests();
}
