/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS, cuDNN, cuFFT, cuSPARSE, cuSOLVER: handles, and queries that determine sizes. */
#include "phantom.h"

#include <stdlib.h>
#include <string.h>

static int made(void **out) {
    *out = handle();
    return *out ? OK : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

/* ---- cuBLAS ---- */

API(int, cublasCreate_v2, void **out) {
    return made(out);
}
API(int, cublasLtCreate, void **out) {
    return made(out);
}
API(int, cublasGetVersion_v2, void *h, int *version) {
    *version = runtime_major() * 10000 + 400;
    return OK;
}
API(size_t, cublasLtGetVersion, void) {
    return (size_t)runtime_major() * 10000 + 400;
}
API(int, cublasGetProperty, int type, int *value) {
    *value = type == 0 ? runtime_major() : type == 1 ? 4 : 0;
    return OK;
}
API(int, cublasGetMathMode, void *h, int *mode) {
    *mode = 0;
    return OK;
}
API(int, cublasGetPointerMode_v2, void *h, int *mode) {
    *mode = 0;
    return OK;
}
API(int, cublasGetStream_v2, void *h, void **stream) {
    *stream = NULL;
    return OK;
}
API(int, cublasLtMatmulDescCreate, void **out, int compute, int scale) {
    return made(out);
}
API(int, cublasLtMatmulDescDestroy, void *d) {
    free(d);
    return OK;
}
API(int, cublasLtMatrixLayoutCreate, void **out, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    return made(out);
}
API(int, cublasLtMatrixLayoutDestroy, void *d) {
    free(d);
    return OK;
}
API(int, cublasLtMatmulPreferenceCreate, void **out) {
    return made(out);
}
API(int, cublasLtMatmulPreferenceDestroy, void *d) {
    free(d);
    return OK;
}
API(int, cublasLtMatmulAlgoGetHeuristic, void *h, void *op, void *a, void *b, void *c, void *d, void *preference,
    int wanted, void *results, int *found) {
    *found = 1;
    return OK;
}

API(int, cusparseCreate, void **out) {
    return made(out);
}
API(int, cusolverDnCreate, void **out) {
    return made(out);
}
API(int, cufftCreate, int *out) {
    *out = 1;
    return OK;
}

/* ---- cuDNN: says that it needs no workspace; a GPU's cuDNN chooses by what runs fastest ---- */

static void workspace_unknown(void) {
    note("phantom-cudnn", "workspaces that cuDNN chooses on a GPU (convolutions, its attention) "
                          "count as nothing");
}

API(int, cudnnCreate, void **out) {
    return made(out);
}
/* The version that PyTorch was built with: it refuses any other. */
static int cudnn_version = 92600;
API(void, phantom_cudnn, int version) {
    cudnn_version = version;
}

API(size_t, cudnnGetVersion, void) {
    return (size_t)cudnn_version;
}
API(int, cudnnGetProperty, int type, int *value) {
    *value = type == 0 ? cudnn_version / 10000 : type == 1 ? cudnn_version / 100 % 100 : cudnn_version % 100;
    return OK;
}
API(size_t, cudnnGetCudartVersion, void) {
    return (size_t)runtime_major() * 1000;
}
API(const char *, cudnnGetErrorString, int error) {
    return error ? "phantom" : "success";
}

static int no_bytes(size_t *out) {
    workspace_unknown();
    *out = 0;
    return OK;
}
API(int, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, void *h, int mode, int ops, void *x, void *z,
    void *y, void *scale, void *activation, size_t *out) {
    return no_bytes(out);
}
API(int, cudnnGetBatchNormalizationBackwardExWorkspaceSize, void *h, int mode, int ops, void *x, void *y, void *dy,
    void *dz, void *dx, void *scale, void *activation, size_t *out) {
    return no_bytes(out);
}
API(int, cudnnGetBatchNormalizationTrainingExReserveSpaceSize, void *h, int mode, int ops, void *activation, void *x,
    size_t *out) {
    return no_bytes(out);
}
API(int, cudnnGetConvolutionForwardWorkspaceSize, void *h, void *x, void *w, void *conv, void *y, int algorithm,
    size_t *out) {
    return no_bytes(out);
}
API(int, cudnnGetConvolutionBackwardDataWorkspaceSize, void *h, void *w, void *dy, void *conv, void *dx, int algorithm,
    size_t *out) {
    return no_bytes(out);
}
API(int, cudnnGetConvolutionBackwardFilterWorkspaceSize, void *h, void *x, void *dy, void *conv, void *dw,
    int algorithm, size_t *out) {
    return no_bytes(out);
}
API(int, cudnnDropoutGetStatesSize, void *h, size_t *out) {
    return no_bytes(out);
}
API(int, cudnnGetCTCLossWorkspaceSize, void *h, void *probabilities, void *gradients, const int *labels,
    const int *label_lengths, const int *input_lengths, int algorithm, void *loss, size_t *out) {
    return no_bytes(out);
}
/* Sizes of a recurrent layer's weights and of what it keeps for backward: only cuDNN knows them. */
API(int, cudnnGetRNNWeightSpaceSize, void *h, void *rnn, size_t *out) {
    note("phantom-unknown-call", "cudnnGetRNNWeightSpaceSize");
    return 3000; /* CUDNN_STATUS_NOT_SUPPORTED */
}
API(int, cudnnGetRNNTempSpaceSizes, void *h, void *rnn, int mode, void *x, size_t *work, size_t *reserve) {
    note("phantom-unknown-call", "cudnnGetRNNTempSpaceSizes");
    return 3000;
}

API(int, cudnnBackendCreateDescriptor, int type, void **out) {
    return made(out);
}
API(int, cudnnBackendDestroyDescriptor, void *d) {
    free(d);
    return OK;
}
API(int, cudnnBackendExecute, void *h, void *plan, void *pack) {
    workspace_unknown();
    return OK;
}
API(int, cudnnBackendGetAttribute, void *d, int name, int type, int64_t wanted, int64_t *count, void *out) {
    enum { INT64 = 3, INT32 = 23 };
    if (count) *count = 1;
    if (out && wanted > 0 && type == INT64) memset(out, 0, 8);
    if (out && wanted > 0 && type == INT32) memset(out, 0, 4);
    return OK;
}
