/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark doctor`: what can be measured on this machine, and how. */
#define _GNU_SOURCE
#include "check.h"
#include "cupti.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STUB_LIBRARY = 34, NO_DRIVER_LIBRARY = 120, NO_SYMBOLS = 121, NO_CONTEXT = 122 };

static void line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void line(const char *name, const char *format, ...) {
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    printf("%s%-12s%s", cli_styled(CLI_BOLD), name, cli_styled_end());
    cli_wrapped(text, 12, 12);
}

/* ---- a trial: the driver started with the agent, and one context, in a process of its own ---- */

static _Noreturn void trial(const launch *l) {
    char agent[4200];
    snprintf(agent, sizeof agent, "%s/agent.so", l->tools);
    launch_set("CUDA_INJECTION64_PATH", agent);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) _exit(NO_DRIVER_LIBRARY);
    int (*init)(unsigned), (*retain)(void **, int);
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    if (!init || !retain) _exit(NO_SYMBOLS);
    int status = init(0);
    if (status != 0) _exit(status < NO_DRIVER_LIBRARY ? status : NO_CONTEXT);
    _exit(retain(&context, 0) == 0 ? 0 : NO_CONTEXT);
}

/* The exit code of the trial; a signal is negative. */
static int trial_run(const launch *l) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) trial(l);
    if (child < 0 || waitpid(child, &status, 0) < 0) return NO_SYMBOLS;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- what it says ---- */

static bool cuda_show(int status) {
    switch (status) {
    case 0:
        line("CUDA", "the driver starts, and a context can be made");
        return true;
    case NO_DRIVER_LIBRARY:
        line("CUDA", "libcuda.so.1 is not found: programs cannot use the GPU; in a container, let "
                     "the driver's libraries in");
        break;
    case STUB_LIBRARY:
        line("CUDA", "libcuda.so.1 is the toolkit's stub (error 34): take the folder stubs/ out of "
                     "LD_LIBRARY_PATH");
        break;
    case NO_SYMBOLS:
        line("CUDA", "libcuda.so.1 lacks the driver's functions");
        break;
    case NO_CONTEXT:
        line("CUDA", "the driver starts, but a context is refused: exclusive mode with another "
                     "process, or no memory left");
        break;
    default:
        line("CUDA", "the driver refuses to start with error %d; `nvidia-smi` and `dmesg` may say why", status);
    }
    return false;
}

static bool cupti_show(const agent_process *agents, size_t count) {
    if (count == 0) {
        line("CUPTI", "the driver did not load the agent: programs are polled only");
        return false;
    }
    const agent_process *a = &agents[0];
    const char *name = cli_base_name(a->path);
    switch (a->subscribed) {
    case CUPTI_OK:
        line("CUPTI", "%s, version %d: callbacks work", name, a->version);
        return true;
    case -1:
        line("CUPTI", "no libcupti on the loader's path; PyTorch's own is used where it has one "
                      "(pip: nvidia-cuda-cupti)");
        break;
    case CUPTI_MULTIPLE_SUBSCRIBERS:
        line("CUPTI", "%s is held by another tool (error 39)", name);
        break;
    case CUPTI_NOT_INITIALIZED:
        line("CUPTI", "%s is newer than the driver supports (error 15)", name);
        break;
    default:
        line("CUPTI", "%s refuses with error %d", name, a->subscribed);
    }
    return false;
}

static void gpus_show(const nvml *n) {
    cli_number total, used;
    for (int i = 0; i < n->count; i++) {
        const nvml_device *d = &n->devices[i];
        nvml_process list[NVML_PROCESSES];
        int count = nvml_processes(n, d, list);
        char title[24];
        snprintf(title, sizeof title, "GPU %d", i);
        if (!d->is_readable) {
            line(title, "%s: the driver does not tell its memory", d->name);
            continue;
        }
        line(title, "%s: %s usable, %s in use%s%s", d->name, cli_size(total, d->total - d->reserved),
             cli_size(used, d->used),
             count > 0   ? " by other processes: a check there is withheld"
             : count < 0 ? "; whose is not told"
                         : "",
             d->is_mig ? "; cut into MIG slices, which are measured by the agent alone" : "");
    }
}

static void mps_show(void) {
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    bool is_there = cli_is_folder(pipe ? pipe : "/tmp/nvidia-mps");
    line("MPS", "%s",
         is_there ? "its folder is there: under MPS processes share one context, whose bytes count "
                    "for each of them"
                  : "not in use");
}

static void context_show(const agent_process *agents, size_t count, const nvml *n) {
    cli_number text;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < AGENT_DEVICES; k++) {
            const agent_device *d = &agents[i].devices[k];
            const nvml_device *device = NULL;
            for (int j = 0; j < n->count; j++)
                if (strcmp(n->devices[j].uuid, d->uuid) == 0) device = &n->devices[j];
            if (device && d->first > device->base)
                line("Context", "takes %s on %s, before any kernel is loaded", cli_size(text, d->first - device->base),
                     device->name);
        }
}

static int cli_doctor(int argc, char **argv) {
    nvml n;
    const char *why;
    char self[] = "sh", *command[] = {self, NULL};
    launch l = {0};
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        cli_help(stdout, "doctor");
        return OBSERVED_OK;
    }
    if (argc > 0) {
        cli_complain(NULL, "doctor takes nothing: no %s", argv[0]);
        return OBSERVED_USAGE;
    }
    int status = launch_prepare(&l, "doctor", 1, command);
    if (status != OBSERVED_OK) return status;
    line("Dry run", "works here; it needs no GPU, and a PyTorch with CUDA in the Python that it runs");
    nvml_status opened = nvml_open(&n, &why);
    if (opened != NVML_OK) {
        line("Driver", "%s%s%s",
             opened == NVML_NO_LIBRARY    ? "none (libnvidia-ml.so.1 is not found)"
             : opened == NVML_NOT_STARTED ? "does not answer"
                                          : "is there, but has no GPU",
             why[0] ? ": " : "", why);
        line("Check", "cannot measure here");
        status = OBSERVED_CANNOT;
    } else {
        line("Driver", "%s, CUDA up to %d.%d", n.driver, n.cuda / 1000, n.cuda % 1000 / 10);
        nvml_set_base(&n);
        gpus_show(&n);
        size_t count;
        int tried = trial_run(&l);
        agent_process *agents = agent_read(&l, &count);
        bool can_start = cuda_show(tried), can_listen = can_start && cupti_show(agents, count);
        if (can_start) context_show(agents, count, &n);
        mps_show();
        line("Check", "%s",
             !can_start   ? "cannot measure here"
             : can_listen ? "reads the device at every driver call that takes memory: exact"
                          : "polls the device every 10 ms: its peak is a lower bound");
        status = can_start ? OBSERVED_OK : OBSERVED_CANNOT;
        free(agents);
    }
    nvml_close(&n);
    launch_close(&l);
    return status;
}

const cli_command cli_doctor_command = {
    "doctor", cli_doctor, "doctor", "what of this machine can be measured, and how",
    "Looks at the driver, the GPUs, CUPTI, MIG and MPS, makes one context on GPU 0 for a moment, and says which way "
    "`tidemark\n"
    "check` would go.\n\n"
    "exit code: 0 a check can measure; 3 it cannot\n"};
