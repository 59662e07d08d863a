/* SPDX-License-Identifier: Apache-2.0 */
/* TRL's AutoModelForCausalLMWithValueHead around a decoder, as LLaMA-Factory makes it: model/loader.py, load_model().
 */
#include "base/rounding.h"
#include "train/run.h"

#include "job/job.h"

/* ValueHead's hidden_size: model.config.word_embed_proj_dim, or else hidden_size by any of its names; 0: it has none.
 */
static int64_t hidden_size_of(const tide_json *config) {
    static const char *const keys[] = {"word_embed_proj_dim", "hidden_size", "n_embd", "d_model"};
    for (size_t i = 0; i < TIDE_COUNT_OF(keys); i++) {
        const tide_json *value = tide_json_at(config, keys[i]);
        if (value && value->kind == TIDE_JSON_NUMBER && value->is_integer) return value->integer;
    }
    return 0;
}

bool tide_add_value_head(tide_run *run, const tide_job *job) {
    tide_model *model = &run->model;
    tide_machine *m = &run->machine;
    int64_t hidden = hidden_size_of(job->config);
    bool is_decoder = tide_model_takes(model, "input_ids") && tide_model_takes(model, "labels") &&
                      !tide_model_takes(model, "decoder_input_ids");
    if (!is_decoder || !hidden || tide_json_at(job->config, "vision_config"))
        return tide_error(
            m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
            "reward of LLaMA-Factory is described for decoders of text, with a value head beside their own",
            "use trainer.program=trl for the figures of TRL's RewardTrainer");
    const tide_value arguments[] = {tide_of_int(hidden)};
    bool is_on_host = m->makes_on_host;
    m->makes_on_host = !tide_trainer_places_model(job);
    uint32_t made = tide_model_wrap(model, model->root, TIDE_TEXT("AutoModelForCausalLMWithValueHead"), arguments,
                                    TIDE_COUNT_OF(arguments));
    if (made) tide_model_call(model, made, TIDE_TEXT("init"), TIDE_FACTOR_PARAMETER);
    m->makes_on_host = is_on_host;
    tide_model_list_parameters(model);
    return made != 0 && !m->has_failed;
}
