/* SPDX-License-Identifier: Apache-2.0 */
/* Versions of libraries: those of the recorded runs, those that are asked for, and those that files pin. */
#include "job/builder.h"

#include <ctype.h>
#include <string.h>

#include "base/units.h"
#include "job/trainers.h"

int64_t tide_unrecorded_percent(tide_setting_id library, int number) {
    static const struct {
        tide_setting_id library;
        int from;
        int64_t percent;
    } rows[] = {
#define TIDE_UNRECORDED(library, major, minor, percent) {TIDE_SET_##library, 1000 * (major) + (minor), percent},
#include "job/versions.def"
    };
    int64_t percent = 0;
    if (number == tide_version_number(tide_setting_default(library))) return 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++)
        if (rows[i].library == library && number >= rows[i].from) percent = rows[i].percent;
    return percent;
}

/* ---- what takes part ---- */

static bool is_server(const tide_job *job) {
    return job->mode == TIDE_mode_serve;
}

static bool serves_by_vllm(const tide_job *job) {
    return is_server(job) && job->engine == TIDE_engine_vllm;
}

static bool serves_by_llama_cpp(const tide_job *job) {
    return is_server(job) && job->engine == TIDE_engine_llama_cpp;
}

static bool serves_by_transformers(const tide_job *job) {
    return is_server(job) && job->engine == TIDE_engine_transformers;
}

static bool serves_by_sglang(const tide_job *job) {
    return is_server(job) && job->engine == TIDE_engine_sglang;
}

static bool is_no_server(const tide_job *job) {
    return !is_server(job);
}

static bool takes_megatron(const tide_job *job) {
    return job->parallel_kind == TIDE_parallel_kind_megatron;
}

/* Whether the script is Megatron-Bridge's, and not Megatron-LM's. */
static bool takes_bridge(const tide_job *job) {
    return takes_megatron(job) && (job->adapter != TIDE_adapter_none || job->parallel_packed_sequences > 0);
}

static bool adapts(const tide_job *job) {
    return job->adapter != TIDE_adapter_none && !is_server(job) && !takes_megatron(job);
}

/* Whether an optimizer's title contains a word. */
static bool steps_by(const tide_job *job, const char *word) {
    static const char *const titles[] = {
#define TIDE_OPTIMIZER(name, title, ...) title,
#include "job/optimizers.def"
#undef TIDE_OPTIMIZER
    };
    return job->mode == TIDE_mode_train && strstr(titles[job->optimizer], word);
}

static bool takes_bits_and_bytes(const tide_job *job) {
    bool is_quantised = job->quant != TIDE_quant_none && !tide_job_packs_weights(job) && !is_server(job);
    return is_quantised || steps_by(job, "(bitsandbytes)");
}

static bool takes_liger(const tide_job *job) {
    return job->loss == TIDE_loss_liger && job->mode == TIDE_mode_train;
}

static bool takes_trl(const tide_job *job) {
    return job->mode == TIDE_mode_train && tide_trainer_is_of_trl(job) && !tide_trl_builds_logits(job);
}

static bool takes_trl_of_logits(const tide_job *job) {
    return tide_trl_builds_logits(job) && !tide_trainer_is_of_factory(job);
}

static bool takes_factory_v1(const tide_job *job) {
    return job->trainer == TIDE_trainer_llama_factory_v1;
}

static bool takes_schedulefree(const tide_job *job) {
    return steps_by(job, "schedule-free");
}

static const struct {
    const char *title, *version;
    bool (*takes_part)(const tide_job *);
} library_rows[] = {
#define TIDE_LIBRARY(title, version, takes_part) {title, version, takes_part},
#include "job/versions.def"
};

/* A requested version other than the recorded one; NULL: none. */
static const char *asked_version(const tide_job *job, const char *title) {
    tide_setting_id id = strcmp(title, "PyTorch") == 0        ? TIDE_SET_torch
                         : strcmp(title, "transformers") == 0 ? TIDE_SET_transformers
                                                              : TIDE_SET_COUNT;
    if (id == TIDE_SET_COUNT || !tide_unrecorded_percent(id, tide_version_number(job->values[id]))) return NULL;
    return job->values[id];
}

/* "Liger Kernel", "liger_kernel": the same but for case and what joins words. */
static bool is_package(tide_text name, const char *title) {
    size_t i = 0;
    for (;; title++) {
        while (*title && strchr(" -_.", *title)) title++;
        while (i < name.length && strchr("-_.", name.at[i])) i++;
        if (!*title || i == name.length) return !*title && i == name.length;
        if (tolower((unsigned char)*title) != tolower((unsigned char)name.at[i++])) return false;
    }
}

tide_library tide_library_of_package(tide_text package) {
    for (size_t i = 0; i < TIDE_COUNT_OF(library_rows); i++)
        if (is_package(package, library_rows[i].title))
            return (tide_library){.title = library_rows[i].title, .version = library_rows[i].version};
    return (tide_library){0};
}

/* The same but for a patch release; "b4719", a build of llama.cpp, has no number. */
static bool is_same_version(const char *one, const char *other) {
    int number = tide_version_number(one);
    return number ? number == tide_version_number(other) : strcmp(one, other) == 0;
}

/* A version that a file pins, other than the recorded one. */
static void add_pin(const tide_job *job, tide_library *library) {
    for (uint32_t i = 0; i < job->pin_count; i++) {
        const tide_pin *pin = &job->pins[i];
        if (strcmp(pin->title, library->title) != 0 || is_same_version(pin->version, library->version)) continue;
        library->pinned = pin->version;
        library->by = pin->file;
        library->place = pin->place;
    }
}

/* The version pinned by the program of a file, if none is requested. */
static void add_pinned(const tide_job *job, tide_library *library) {
    static const struct {
        const char *program, *by, *title, *pinned;
    } rows[] = {
#define TIDE_PINNED(program, version, library, pinned) {program, program " " version, library, pinned},
#include "job/versions.def"
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(rows); i++) {
        if (!job->program || library->asked || library->pinned || strcmp(rows[i].program, job->program) != 0 ||
            strcmp(rows[i].title, library->title) != 0 || strcmp(rows[i].pinned, library->version) == 0)
            continue;
        library->pinned = rows[i].pinned;
        library->by = rows[i].by;
    }
}

uint32_t tide_job_libraries(const tide_job *job, tide_library *libraries) {
    uint32_t count = 0;
    for (size_t i = 0; i < TIDE_COUNT_OF(library_rows) && count < TIDE_LIBRARIES_MOST; i++) {
        if (!library_rows[i].takes_part(job)) continue;
        libraries[count] = (tide_library){.title = library_rows[i].title,
                                          .version = library_rows[i].version,
                                          .asked = is_server(job) ? NULL : asked_version(job, library_rows[i].title)};
        add_pin(job, &libraries[count]);
        add_pinned(job, &libraries[count++]);
    }
    return count;
}

void tide_warn_of_pins(tide_job_builder *b) {
    tide_library libraries[TIDE_LIBRARIES_MOST];
    b->job->pins = b->inputs.pins;
    b->job->pin_count = b->inputs.pin_count;
    uint32_t count = tide_job_libraries(b->job, libraries);
    for (uint32_t i = 0; i < count; i++)
        if (libraries[i].place)
            tide_report(b->diags, TIDE_WARNING, TIDE_ERR_UNSUPPORTED, libraries[i].place,
                        tide_format(b->arena, "%s pins %s %s, of which no run is recorded: the figures are those of %s",
                                    libraries[i].by, libraries[i].title, libraries[i].pinned, libraries[i].version),
                        "`tidemark dry-run` runs a program with the versions that are installed");
}
