/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's memory on the device, outside of PyTorch's allocator: an estimate, because its channels and connections depend
 * on the machine.
 *
 * A communicator receives through buffers on each channel, one set for every protocol: src/init.cc computeBuffSizes(),
 * with the sizes of src/include/device.h. A ring receives from one neighbour; trees and NVLink SHARP have more peers,
 * and all-to-all has a connection with every other rank.
 *
 * Published: 544 MB for two A100, 688 MB for four (github.com/NVIDIA/nccl/issues/964), 1.6 GB for eight (issue
 * 864); 3.28 GB more for the first all-to-all of eight H100 (issue 1685). */
#include "parallel/parallel.h"

#include <string.h>

enum {
    LL_BYTES = 8 * 512 * 8 * 16,     /* NCCL_LL_LINES_PER_THREAD, _LL_MAX_NTHREADS, _STEPS, sizeof(ncclLLFifoLine) */
    LL128_BYTES = 120 * 640 * 8 * 8, /* NCCL_LL128_ELEMS_PER_THREAD, _LL128_MAX_NTHREADS, _STEPS, sizeof(uint64_t) */
    SIMPLE_BYTES = 1 << 22,          /* NCCL_BUFFSIZE */
    CHANNELS = 24,                   /* of rings between eight GPUs over NVLink, according to NCCL's log */
    LEAST_CHANNELS = 2               /* over PCIe, with rings only */
};

static const int64_t most_bytes = 1600000000, all_to_all_bytes = 3280000000; /* published, see above */

/* Groups with more than one rank: tensor, pipeline, context, and data with context, as dimensions of a DeviceMesh; for
 * Megatron-Core's experts also expert and expert data (parallel_state.py: initialize_model_parallel). */
static int64_t communicators_of_mesh(const tide_job *job) {
    int64_t of_experts = job->parallel_ep > 1 ? 2 : 0;
    return (job->parallel_tp > 1) + (job->parallel_pp > 1) + (job->parallel_cp > 1) +
           (job->parallel_dp * job->parallel_cp > 1) + of_experts;
}

/* The world's, and others that a framework creates: groups of shards and of replicas, DeepSpeed's clone of the world, a
 * node's. */
static int64_t communicators_of(const tide_job *job) {
    tide_parallel_kind_choice kind = job->parallel_kind;
    if (kind == TIDE_parallel_kind_megatron || kind == TIDE_parallel_kind_native || kind == TIDE_parallel_kind_tp ||
        kind == TIDE_parallel_kind_pp)
        return communicators_of_mesh(job);
    bool of_deepspeed = tide_job_has_deepspeed(job);
    bool is_hybrid = job->parallel_hybrid > 0, is_near = job->parallel_zero_hpz_partition_size > 1;
    bool has_ulysses = job->parallel_sequence_parallel_size > 1; /* parallel_state_sp.py: the ranks of a sequence */
    bool has_ring = tide_trainer_cuts_sequences(job);
    return 1 + of_deepspeed + is_near + has_ulysses + has_ring + (is_hybrid ? 2 : 0);
}

tide_nccl tide_nccl_of(const tide_job *job) {
    const int64_t channel = LL_BYTES + LL128_BYTES + SIMPLE_BYTES;
    int64_t ranks = tide_job_world(job);
    bool is_alone = job->parallel_kind == TIDE_parallel_kind_none || ranks < 2;
    int64_t count = is_alone ? 0 : communicators_of(job);
    bool has_all_to_all = count && (job->parallel_ep > 1 || job->parallel_sequence_parallel_size > 1);
    return (tide_nccl){.communicators = count,
                       .bytes = count * CHANNELS * channel,
                       .least = count * LEAST_CHANNELS * channel,
                       .most = count * most_bytes + (has_all_to_all ? all_to_all_bytes : 0)};
}
