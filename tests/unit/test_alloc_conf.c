/* SPDX-License-Identifier: Apache-2.0 */
/* Failures point to core/src/allocator/alloc_conf.c: the text of PYTORCH_CUDA_ALLOC_CONF. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator_player.h"

/* ---- the option text ---- */

static void test_conf_values(void) {
    begin("options are read as PyTorch reads them");
    tide_alloc_conf c =
        conf_of("max_split_size_mb:128, max_non_split_rounding_mb : 40,garbage_collection_threshold:0.85,"
                "expandable_segments:True,large_segment_size_mb:64,per_process_memory_fraction:0.5,");
    EQUAL(c.max_split_size_bytes, 128 * MIB);
    EQUAL(c.max_non_split_rounding_bytes, 40 * MIB);
    EQUAL(c.large_segment_size_bytes, 64 * MIB);
    CHECK(c.expandable_segments && c.garbage_collection_threshold == 0.85 && c.per_process_memory_fraction == 0.5);
    EQUAL(c.warnings, 0);
    c = conf_of("");
    EQUAL(c.max_split_size_bytes, UINT64_MAX);
    EQUAL(c.max_non_split_rounding_bytes, 20 * MIB);
    CHECK(conf_of("garbage_collection_threshold:1e-1").garbage_collection_threshold == 0.1);
    CHECK(conf_of("throw_on_cudamalloc_oom:True").throw_on_cudamalloc_oom);
    EQUAL(conf_of("throw_on_cudamalloc_oom:True").warnings, 0);
    EQUAL(conf_of("throw_on_cudamalloc_oom:False,expandable_segments_reserve:40G").warnings,
          TIDE_ALLOC_CONF_NOT_MODELLED);
    CHECK(conf_of("garbage_collection_threshold:0.50000000000000000000").garbage_collection_threshold == 0.5);
    CHECK(conf_of("garbage_collection_threshold:5000000000000000000000e-22").garbage_collection_threshold == 0.5);
    CHECK(conf_of("garbage_collection_threshold:.3").garbage_collection_threshold == 0.3);
    CHECK(conf_of("garbage_collection_threshold:0.123456789012").garbage_collection_threshold == 0.123456789012);
    c = conf_of("max_split_size_mb:512MB");
    EQUAL(c.max_split_size_bytes, 512 * MIB);
    EQUAL(c.warnings, TIDE_ALLOC_CONF_TRAILING_TEXT);
    EQUAL(conf_of("backend:cudaMallocAsync,max_split_size_mb:64").warnings, TIDE_ALLOC_CONF_ASYNC_IGNORES);
    EQUAL(conf_of("expandable_segments_reserve_by_class:[a:1,b:2],expandable_segments:False").warnings,
          TIDE_ALLOC_CONF_NOT_MODELLED);
    EQUAL(conf_of("pinned_num_register_threads:8,pinned_use_background_threads:True,backend:native,"
                  "release_lock_on_cudamalloc:False,pinned_use_cuda_host_register:True")
              .warnings,
          0);
    end();
}

static void test_conf_roundup(void) {
    begin("roundup_power2_divisions: the first key fills below, > from the next bucket (2.4: from "
          "the last)");
    tide_alloc_conf c = conf_of("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
    static const uint64_t main_list[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8};
    for (int i = 0; i < 16; i++) EQUAL(c.roundup_power2_divisions[i], main_list[i]);
    const char *text = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]";
    CHECK(tide_alloc_conf_parse(&c, TIDE_ALLOC_TORCH_2_4, text, strlen(text), NULL));
    EQUAL(c.roundup_power2_divisions[9], 2);
    EQUAL(c.roundup_power2_divisions[10], 8);
    c = conf_of("roundup_power2_divisions:[64:4,256:8]");
    EQUAL(c.roundup_power2_divisions[6], 4);
    EQUAL(c.roundup_power2_divisions[7], 0);
    EQUAL(c.roundup_power2_divisions[8], 8);
    EQUAL(c.roundup_power2_divisions[9], 0);
    c = conf_of("roundup_power2_divisions:[1048576:2]");
    EQUAL(c.roundup_power2_divisions[15], 2);
    c = conf_of("roundup_power2_divisions:16");
    for (int i = 0; i < 16; i++) EQUAL(c.roundup_power2_divisions[i], 16);
    end();
}

static void test_conf_errors(void) {
    static const struct {
        const char *text, *message;
        size_t offset;
    } rows[] = {
        {"max_split_size:20", "Unrecognized key 'max_split_size' in CUDA allocator config.", 0},
        {"expandable_segments:True,,", "Unrecognized key ',' in CUDA allocator config.", 25},
        {"max_split_size_mb:19", "CachingAllocator option max_split_size_mb too small, must be >= 20", 18},
        {"large_segment_size_mb:40,max_split_size_mb:39",
         "CachingAllocator option max_split_size_mb too small, must be >= 40", 43},
        {"large_segment_size_mb:10", "CachingAllocator option large_segment_size_mb must be > 10 MB", 22},
        {"max_split_size_mb", "Error parsing CachingAllocator settings, expected :", 17},
        {"max_split_size_mb=64", "Unrecognized key 'max_split_size_mb=64' in CUDA allocator config.", 0},
        {"max_split_size_mb:", "Error, expecting max_split_size_mb value", 18},
        {"max_split_size_mb:,", "Error, expecting max_split_size_mb value", 18},
        {"max_split_size_mb:x", "max_split_size_mb is not a number: 'x'", 18},
        {"max_split_size_mb:99999999999999999999", "max_split_size_mb is out of range: '99999999999999999999'", 18},
        {"max_split_size_mb:64]", "Error parsing CachingAllocator settings, expected ,", 20},
        {"expandable_segments:true", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'", 20},
        {"garbage_collection_threshold:1", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)", 29},
        {"garbage_collection_threshold:0", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)", 29},
        {"garbage_collection_threshold:nan", "garbage_collection_threshold is not a number: 'nan'", 29},
        {"per_process_memory_fraction:1.1", "per_process_memory_fraction is invalid, set it in [0.0, 1.0]", 28},
        {"roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2", 25},
        {"roundup_power2_divisions:[3:2]", "For roundups, the intervals have to be power of 2", 26},
        {"roundup_power2_divisions:[4:3]", "For roundups, the divisions has to be power of 2 or 0 to disable roundup",
         28},
        {"roundup_power2_divisions:[4:x]", "roundup_power2_divisions is not a number: 'x'", 28},
        {"roundup_power2_divisions:[4:2:", "Error parsing CachingAllocator settings, expected ,", 29},
        {"roundup_power2_divisions:[4", "Error parsing CachingAllocator settings, expected :", 27},
        {"expandable_segments_reserve_by_class:[a:1", "Expected closing bracket ']'", 41},
        {"throw_on_cudamalloc_oom:1", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '1'", 24},
        {"roundup_power2_divisions:[4:2", "Expected closing bracket ']'", 29},
        {"backend:cuda", "Unknown allocator backend, options are native and cudaMallocAsync", 8},
        {"pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3", 28},
        {"pinned_num_register_threads:256", "Number of register threads should be less than or equal to 128, got 256",
         28},
        {"pinned_reserve_segment_size_mb:0", "Pinned reserve segment size has to be greater than 0", 31}};
    begin("errors of the option text: PyTorch's words and the place");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tide_alloc_conf conf;
        tide_alloc_conf_error error;
        if (tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_MAIN, rows[i].text, strlen(rows[i].text), &error))
            complain("'%s' is accepted", rows[i].text);
        if (strcmp(error.message, rows[i].message) != 0 || error.offset != rows[i].offset)
            complain("'%s': '%s' at %zu, want '%s' at %zu", rows[i].text, error.message, error.offset, rows[i].message,
                     rows[i].offset);
    }
    tide_alloc_conf conf;
    CHECK(!tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_2_4, "large_segment_size_mb:40", 24, NULL));
    end();
}

static void test_conf_noise(void) {
    static const char *const pieces[] = {"max_split_size_mb",
                                         "roundup_power2_divisions",
                                         "backend",
                                         "native",
                                         "64",
                                         ":",
                                         ":",
                                         ",",
                                         "[",
                                         "]",
                                         ">",
                                         " ",
                                         "-",
                                         "0.5",
                                         "True",
                                         "1e999",
                                         "expandable_segments",
                                         "garbage_collection_threshold",
                                         "e",
                                         "18446744073709551616"};
    begin("no text breaks the option parser");
    draw_state = 3;
    for (int i = 0; i < 20000; i++) {
        char text[600] = "";
        tide_alloc_conf conf;
        tide_alloc_conf_error error;
        for (uint64_t n = draw() % 20; n > 0; n--) strcat(text, pieces[draw() % (sizeof pieces / sizeof *pieces)]);
        bool ok = tide_alloc_conf_parse(&conf, TIDE_ALLOC_TORCH_MAIN, text, strlen(text), &error);
        if (ok != (error.message[0] == 0)) complain("'%s': '%s'", text, error.message);
        CHECK(error.offset <= strlen(text));
        CHECK(conf.max_split_size_bytes >= 20 * MIB && conf.garbage_collection_threshold < 1);
    }
    end();
}

int main(void) {
    test_conf_noise();
    test_conf_values();
    test_conf_roundup();
    test_conf_errors();
    begin("every byte of host memory is returned");
    EQUAL(hook_bytes, 0);
    end();
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
