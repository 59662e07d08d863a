/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine reads in config.json. Private to serve/. */
#ifndef TIDE_SERVE_CONFIG_H
#define TIDE_SERVE_CONFIG_H

#include "base/json_read.h"

/* The language model's part of it, or all. */
const tide_json *tide_serve_text_config(const tide_json *config);

/* The first of these keys, in the language model's configuration or the whole one. */
int64_t tide_serve_number(const tide_json *config, const char *const *keys, int64_t otherwise);

#define TIDE_SERVE_NUMBER(config, otherwise, ...)                                                                      \
    tide_serve_number(config, (const char *const[]){__VA_ARGS__, NULL}, otherwise)

int64_t tide_serve_layers(const tide_json *config);

/* config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS. */
bool tide_serve_bars_fp16(const tide_json *config);

/* Whether a class of this name generates; others are served as pooling models. */
bool tide_serve_generates(tide_text architecture);

/* No key says how many positions there are. */
#define TIDE_ENDLESS INT64_MAX

/* The longest max_model_len that it allows, by which key (or NULL), and what it is where it is not given; tokens. */
int64_t tide_serve_derived_length(const tide_json *config, const char **key);
int64_t tide_serve_default_length(const tide_json *config);

#endif
