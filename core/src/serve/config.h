/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine reads from config.json. Private to serve/. */
#ifndef TIDE_SERVE_CONFIG_H
#define TIDE_SERVE_CONFIG_H

#include "base/json_read.h"

/* The language model's part of it, or the whole. */
const tide_json *tide_serve_text_config(const tide_json *config);

/* The first of these keys found in the language model's configuration or in the whole one. */
int64_t tide_serve_number(const tide_json *config, const char *const *keys, int64_t otherwise);

#define TIDE_SERVE_NUMBER(config, otherwise, ...)                                                                      \
    tide_serve_number(config, (const char *const[]){__VA_ARGS__, NULL}, otherwise)

int64_t tide_serve_layers(const tide_json *config);

/* config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS. */
bool tide_serve_bars_fp16(const tide_json *config);

/* Whether a class of this name generates text; others are served as pooling models. */
bool tide_serve_generates(tide_text architecture);

/* No key limits the number of positions. */
#define TIDE_ENDLESS INT64_MAX

/* The largest max_model_len that the engine allows, the key that limits it (or NULL), and its default; tokens. */
int64_t tide_serve_derived_length(const tide_json *config, const char **key);
int64_t tide_serve_default_length(const tide_json *config);

#endif
