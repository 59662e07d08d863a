/* SPDX-License-Identifier: Apache-2.0 */
/* What TRL's trainers take of a model, and what they refuse beside its images. */
#include <string.h>

#include "base/rounding.h"
#include "train/rollouts.h"
#include "train/trainer_run.h"

/* trl/trainer/sft_trainer.py and dpo_trainer.py, __init__ and torch_call() of their collators. */
static bool check_beside_images(tide_trainer_run *t) {
    const tide_job *job = t->job;
    bool pads = job->pad_to_multiple_of > 1 && !tide_trainer_generates(job),
         has_prompts = !t->kind->packs || job->trainer_prompt_length;
    const struct {
        bool is_set;
        tide_status status;
        const char *setting, *what;
    } refused[] = {
        {job->packing, TIDE_ERR_CONFLICT, "packing", "TRL: \"Packing is not supported for vision datasets\""},
        {job->trainer_padding_free, TIDE_ERR_CONFLICT, "trainer.padding_free",
         "TRL: \"Padding-free training is yet not supported for vision datasets\""},
        {job->trainer_precompute_ref_log_probs, TIDE_ERR_CONFLICT, "trainer.precompute_ref_log_probs",
         "TRL: \"`precompute_ref_log_probs=True` is not supported for vision datasets\""},
        {pads && has_prompts, TIDE_ERR_CONFLICT, "pad_to_multiple_of",
         "TRL: \"Padding to a multiple of a value is not yet implemented for vision-language modeling and "
         "prompt-completion data\""},
        {tide_job_has_lengths(job), TIDE_ERR_UNSUPPORTED, "lengths",
         "a list of lengths is not described beside images"},
    };
    for (size_t i = 0; i < TIDE_COUNT_OF(refused); i++)
        if (refused[i].is_set)
            return tide_error(t->run->machine.diags, refused[i].status,
                              tide_format(t->run->machine.arena, "/settings/%s", refused[i].setting), refused[i].what,
                              "leave it out, or give images=0");
    return true;
}

/* Prompts of trainers that generate hold the tokens of their images. */
static bool check_prompts(tide_trainer_run *t) {
    tide_model *model = &t->run->model;
    bool has_size = tide_size_find(model->descriptions, model->scopes[0].description, TIDE_TEXT("media_tokens"));
    int64_t media = has_size ? tide_size_in(model, 0, "media_tokens").integer : 0,
            prompt = tide_rollout_prompt(t->run, t->job);
    if (tide_has_colocated_engine(t->job))
        return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/images",
                          "images that an engine of vLLM on the same GPU sees are not described",
                          "give images=0, or trainer.vllm_mode=server");
    if (t->job->parallel_kind == TIDE_parallel_kind_fsdp1 && t->job->autocast.is_set)
        return tide_error(model->m->diags, TIDE_ERR_CONFLICT, "/settings/parallel.kind",
                          "generate() encodes images outside of FSDP1's root, whose weights are not cast there: \"mat1 "
                          "and mat2 must have the same dtype, but got Float and BFloat16\"",
                          "take parallel.kind=fsdp2, or give images=0");
    if (media <= prompt) return true;
    return tide_error(model->m->diags, TIDE_ERR_CONFLICT, "/settings/trainer.prompt_length",
                      tide_format(model->m->arena, "%lld tokens do not hold the %lld of a sample's images",
                                  (long long)prompt, (long long)media),
                      "give a larger one, or images=0");
}

/* What the processor makes is passed on by name to _get_per_token_logps_and_entropies(). */
static bool check_scored_inputs(tide_trainer_run *t) {
    static const char *const taken[] = {
        "pixel_values",   "image_grid_thw",    "pixel_attention_mask", "spatial_shapes", "image_sizes",
        "token_type_ids", "mm_token_type_ids", "image_position_ids",   "input_ids",      "attention_mask",
        "labels",         "position_ids",      "rope_deltas"}; /* the last two: of other trainers */
    const tide_model *model = &t->run->model;
    const tide_json *inputs = tide_described_inputs(model);
    for (const tide_json *item = inputs ? inputs->first : NULL; item; item = item->next) {
        bool is_taken = false;
        for (size_t i = 0; i < TIDE_COUNT_OF(taken); i++) is_taken |= strcmp(item->key.at, taken[i]) == 0;
        if (!is_taken)
            return tide_error(model->m->diags, TIDE_ERR_CONFLICT, "/settings/trainer",
                              tide_format(model->m->arena,
                                          "TRL: \"_get_per_token_logps_and_entropies() got an unexpected keyword "
                                          "argument '%s'\", which the processor of this model makes of images",
                                          item->key.at),
                              "give images=0, or take trainer=sft");
    }
    return true;
}

/* LLaMA-Factory: train/kto/trainer.py, forward(), which passes on what it names. */
static bool check_passed_on(tide_trainer_run *t) {
    static const char *const dropped[] = {"mm_token_type_ids", "pixel_attention_mask", "spatial_shapes",
                                          "image_position_ids"};
    const tide_json *inputs = tide_described_inputs(&t->run->model);
    bool is_kto = tide_trainer_is_of_factory(t->job) && t->job->trainer == TIDE_trainer_kto;
    for (size_t i = 0; i < TIDE_COUNT_OF(dropped) && is_kto; i++)
        if (tide_json_at(inputs, dropped[i]))
            return tide_error(t->run->machine.diags, TIDE_ERR_CONFLICT, "/settings/trainer",
                              tide_format(t->run->machine.arena,
                                          "KTO of LLaMA-Factory does not pass %s on to the model, which refuses an "
                                          "image without it",
                                          dropped[i]),
                              "use stage: dpo, or trainer.program=trl");
    return true;
}

/* For models that take other inputs as well, what is not described. */
static bool plays_media(tide_trainer_run *t) {
    const tide_model *model = &t->run->model;
    const char *trainer = t->job->values[TIDE_SET_trainer];
    bool shows_video = t->job->video.frames > 0;
    if (!tide_has_images(t)) return true;
    bool is_older = tide_trl_builds_logits(t->job) && !tide_trainer_is_of_factory(t->job);
    if (t->kind->sees_images && !is_older && !shows_video)
        return check_beside_images(t) && check_passed_on(t) &&
               (!tide_trainer_generates(t->job) || (check_prompts(t) && check_scored_inputs(t)));
    return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, shows_video ? "/settings/video" : "/settings/images",
                      tide_format(model->m->arena, "%s that %s of TRL trains with are not described",
                                  shows_video ? "videos" : "images", trainer),
                      "images=0 plays texts alone; trainer=hf plays images, with the model's own loss");
}

/* model.base_model and get_output_embeddings(): the only modules of a causal language model. A reward model has one
 * score per row, and no output embeddings. */
bool tide_find_parts(tide_trainer_run *t) {
    tide_model *model = &t->run->model;
    const tide_instance *root = &model->instances[model->root];
    if (tide_trainer_has_value_head(t->job)) {
        t->base_model = (tide_value){.kind = TIDE_VALUE_MODULE, .module = model->root};
        return true;
    }
    if (t->kind->scores_rows) {
        bool has_score = tide_text_contains(root->of->name, TIDE_TEXT("ForSequenceClassification")) &&
                         tide_model_find(model, TIDE_TEXT("score"));
        if (!has_score)
            return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                              "reward is described for decoders that classify sequences, by a head named score", NULL);
        t->base_model = (tide_value){.kind = TIDE_VALUE_MODULE, .module = model->root};
        return true;
    }
    if (!plays_media(t)) return false;
    const tide_json *inputs = tide_described_inputs(model);
    bool is_decoder = tide_json_at(inputs, "input_ids") && !tide_json_at(inputs, "decoder_input_ids");
    tide_text path = root->of->output_embeddings;
    uint32_t head = tide_model_find(model, path.length ? path : TIDE_TEXT("lm_head")), base = 0, others = 0;
    for (uint32_t i = 1; i < model->instance_count; i++) {
        if (model->instances[i].parent != model->root || i == model->root || i == head) continue;
        if (base) others++;
        if (!base) base = i;
    }
    if (!is_decoder || !base || others || !head)
        return tide_error(model->m->diags, TIDE_ERR_UNSUPPORTED, "/settings/trainer",
                          tide_format(model->m->arena, "%s of TRL is described for causal language models",
                                      t->job->values[TIDE_SET_trainer]),
                          "use trainer=hf");
    bool is_whole = t->kind->builds_logits || tide_trl_builds_logits(t->job);
    t->base_model = (tide_value){.kind = TIDE_VALUE_MODULE, .module = is_whole ? model->root : base};
    t->lm_head = (tide_value){.kind = TIDE_VALUE_MODULE, .module = head};
    return true;
}
