/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, opened at run time: the memory of a device as counted by the driver. */
#ifndef TIDE_NVML_H
#define TIDE_NVML_H

#include <stdbool.h>
#include <stdint.h>

enum { NVML_DEVICES = 64, NVML_PROCESSES = 256 };

typedef struct nvml_device {
    void *handle;
    char name[96], uuid[96];
    int64_t total;    /* as shown by nvidia-smi */
    int64_t reserved; /* by the driver; 0 if it is not separate from used memory */
    int64_t used;
    int64_t base; /* used, before the command */
    int64_t peak; /* the most seen by polling */
    bool is_mig, is_readable;
} nvml_device;

typedef struct nvml {
    void *library;
    char driver[80];
    int cuda; /* the newest version that the driver supports: 13000 */
    int count;
    nvml_device devices[NVML_DEVICES];
} nvml;

typedef enum nvml_status {
    NVML_OK,
    NVML_NO_LIBRARY,  /* no driver is installed */
    NVML_NOT_STARTED, /* it is installed, but does not respond */
    NVML_NO_DEVICE
} nvml_status;

/* `why` is NVML's own message if it gave one. */
nvml_status nvml_open(nvml *n, const char **why);
void nvml_close(nvml *n);
void nvml_poll(nvml *n); /* reads used and peak of every device */
void nvml_set_base(nvml *n);

typedef struct nvml_process {
    int64_t pid, bytes; /* bytes: -1 if the driver does not tell */
} nvml_process;

/* Processes with a context on the device; -1: not available. */
int nvml_processes(const nvml *n, const nvml_device *device, nvml_process out[NVML_PROCESSES]);
nvml_device *nvml_find(nvml *n, const char *uuid);

#endif
