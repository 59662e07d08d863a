/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of events that tests/oracle/events has, each named for what it shows. */
#ifndef TEST_RECORDED_STREAMS_H
#define TEST_RECORDED_STREAMS_H

#define RECORDED_STREAMS                                                                                               \
    "collect", "convolution", "decode", "expandable", "expandable-retry", "experts", "max-split", "nf4-lora", "oom",   \
        "padding", "plain", "retry", "roundup", "roundup-list", "seq2seq", "scaler-accumulate"

#endif
