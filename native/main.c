/* The commands of `tidemark`, and its help. */
#include "cli.h"

#include <string.h>
#include <tidemark/tidemark.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* the words after the command */
    const char *usage, *summary, *help;
} command;

#define JOB_WORDS                                                                                                      \
    "  MODEL             a name of the catalogue (`tidemark describe models`)\n"                                       \
    "  config.json       a model's own configuration; preprocessor_config.json may follow; \"-\" "                     \
    "is\n"                                                                                                             \
    "                    standard input, and FOLDER/ is the two files in it\n"                                         \
    "  LINK              what the page's address or `tidemark link` shows, whole or from the # "                       \
    "on\n"                                                                                                             \
    "  key=value         settings (`tidemark describe settings`), also as --key VALUE; the last one of a name holds\n"

#define EVENT_OPTIONS                                                                                                  \
    "  --events          events one by one: what was taken and given back, its block and segment, and what is\n"       \
    "                    allocated and reserved after it\n"                                                            \
    "  --state           the allocator after an event: segments, free memory in them, and what is alive\n"             \
    "  --at EVENT        around it; after it (without: from the beginning; at the peak)\n"                             \
    "  --count N         of events, at most 500; 20 if not given\n"                                                    \
    "  --filter TEXT     those with TEXT in the kind, or in what asked for them\n"

static const command commands[] = {
    {"estimate", cli_estimate,
     "estimate MODEL|config.json|LINK [files] [key=value ...] [--gpu NAME] [--bytes] [--json]",
     "the memory of a training step: does it fit, and where every byte is",
     "Plays the job's training steps as PyTorch would run them, with shapes in place of numbers, "
     "and\n"
     "shows the moment at which most memory is in use.\n\n" JOB_WORDS
     "  --gpu NAME        the card (`tidemark describe gpus`): its memory and its kernels\n"
     "  --bytes           exact bytes in place of GiB\n"
     "  --json            the whole answer: tensors, timeline and phases too\n\n"
     "examples\n"
     "  tidemark estimate llava-1.5-7b --gpu h100-80 batch=16 seq=1024 freeze=vision_tower\n"
     "  tidemark estimate llama-3.1-8b checkpointing=full optimizer=adamw_fused dtype=bf16\n"
     "  tidemark estimate ./my-model/config.json batch=2 overrides.num_hidden_layers=8\n"
     "  tidemark estimate '#model=qwen2.5-7b&batch=4&v=1' --json | jq .peak\n\n"
     "exit code: 0 it fits, or no card is given; 1 it does not fit, or that cannot be told; 2 to 4 as in `tidemark "
     "--help`\n"},
    {"serve", cli_serve, "serve MODEL|config.json|LINK --gpu NAME [key=value ...] [--json]",
     "an inference server: what is left for the cache, and how many requests fit",
     "Starts vLLM 0.32.0 with shapes in place of numbers: its buffers, the weights in its own layers, the run that it\n"
     "measures, its budget, its cache groups and blocks. Settings have vLLM's names, as key=value or as its "
     "options.\n\n"
     "  --gpu NAME        the card (`tidemark describe gpus`)\n"
     "  input_len=N output_len=N   tokens of a request; without them, a ladder of lengths\n"
     "  --json            the whole answer\n\n"
     "examples\n"
     "  tidemark serve llama-3.1-8b --gpu l40s max_model_len=8192\n"
     "  tidemark serve qwen3-30b-a3b --gpu h100-80 tensor_parallel_size=2 enable_expert_parallel=true\n"
     "  tidemark serve gemma-2-9b --gpu a100-40 enforce_eager=true input_len=3000 output_len=500\n\n"
     "exit code: 0 the engine starts; 1 it refuses; 2 to 4 as in `tidemark --help`\n"},
    {"explain", cli_explain,
     "explain MODEL|config.json|LINK [key=value ...] [--of WHAT] [--stage STAGE] [--events|--state] [--json]",
     "where a number comes from: tensor, shape, operation, line of the description",
     "The same words as `tidemark estimate`.\n\n"
     "  --of WHAT         a factor (activations), a part of a module's name or an operation;\n"
     "                    without it, everything that lives at the peak\n"
     "  --stage STAGE     what one stage made, tab-separated: job, modules, parameters,\n"
     "                    events (every allocation and free) or blocks (the allocator at the\n"
     "                    peak); --of keeps the rows that contain WHAT\n" EVENT_OPTIONS
     "  --json            the whole answer\n\n"
     "examples\n"
     "  tidemark explain llava-1.5-7b batch=16 --of activations\n"
     "  tidemark explain llama-2-7b --of mlp\n"
     "  tidemark explain gpt2 --stage events --of attn\n"
     "  tidemark explain gpt2 --state --at 1200\n"},
    {"sweep", cli_sweep,
     "sweep MODEL|config.json|LINK [key=value,value,... ...] [--gpu NAME] [--csv FILE] [--bytes] [--json]",
     "the peaks of every combination of settings, as a table",
     "The same words as `tidemark estimate`; a setting with several values, parted by commas, is swept. Values of "
     "lists\n"
     "(freeze, train_only) are not parted.\n\n"
     "  --csv FILE        exact bytes as CSV; \"-\" is standard output\n"
     "  --bytes           exact bytes in place of GiB\n"
     "  --json            the answer of each combination, one a line\n\n"
     "examples\n"
     "  tidemark sweep llava-1.5-7b recipe=llava-finetune dp=1,2,4,8 parallel.kind=zero1,zero2,zero3\n"
     "  tidemark sweep llama-3.1-8b,llama-2-7b --gpu a100-80 batch=1,2,4,8 checkpointing=none,full --csv sizes.csv\n\n"
     "exit code: 0 done; 1 no combination fits; 2 all are refused; 3 and 4 as in `tidemark --help`\n"},
    {"describe", cli_describe, "describe [settings|models|gpus|ops|NAME | --check FILE] [--json]",
     "settings, models, cards and operations that tidemark knows",
     "Without a topic, how many of each there are. NAME shows one setting, model or card.\n\n"
     "examples\n"
     "  tidemark describe settings\n"
     "  tidemark describe checkpointing\n"
     "  tidemark describe --json | jq '.models[].name'\n"
     "  tidemark describe --check my-model.json   what is wrong with a description, by line and column\n"},
    {"verify", cli_verify,
     "verify FILE.jsonl... [--configs DIR] [--where key=value] [--csv FILE] [--tolerance PERCENT] "
     "[--json]",
     "predicted against measured memory, for recorded runs",
     "Reads measured runs, one JSON object a line (\"case\" holds the settings; sizes are bytes), "
     "predicts\n"
     "each, and shows the errors. Files may be gzip; \"-\" is standard input.\n\n"
     "  --configs DIR     take configurations from DIR/MODEL/config.json, not from the catalogue\n"
     "  --where KEY=VALUE only cases with this setting (KEY!=VALUE: without it); may be repeated; "
     "a\n"
     "                    setting that a case does not state has its default\n"
     "  --csv FILE        a row for each case; \"-\" prints them in place of the summary\n"
     "  --tolerance P     exit code 1 if an allocated peak is off by more than P percent\n"
     "  --json            the summary as an object; errors in parts per million of the measured "
     "value\n\n"
     "examples\n"
     "  tidemark verify results/*.jsonl --configs configs --tolerance 1\n"
     "  tidemark verify results/llava-1.5-7b.jsonl --where checkpointing=full --csv errors.csv\n"},
    {"fit", cli_fit, "fit MODEL|config.json|LINK [key=value ...] [--knob NAME] [--by NAME=A,B,...] [--json]",
     "the largest batch, sequence, ... that fits the card",
     "The same words as `tidemark estimate`, a card among them. Every size that is tried is played.\n\n"
     "  --knob NAME       a whole-numbered setting: batch (the default), seq, images, grad_accum, adapter.r ...\n"
     "  --by NAME=A,B     for each of these values of another setting\n"
     "  --json            the whole answer\n\n"
     "examples\n"
     "  tidemark fit llama-3.1-8b --gpu h100-80 seq=2048 checkpointing=full\n"
     "  tidemark fit llama-3.1-8b --gpu h100-80 --by seq=1024,2048,4096,8192\n"},
    {"cards", cli_cards, "cards MODEL|config.json|LINK [key=value ...] [--json]", "on which cards it runs",
     "The same words as `tidemark estimate`; every card is played with its own kernels. With parallel.kind\n"
     "it says how many cards it takes, in powers of two.\n\n"
     "  --json            the whole answer\n\n"
     "examples\n"
     "  tidemark cards llama-3.1-8b adapter=lora\n"
     "  tidemark cards llama-3.1-8b parallel.kind=zero3\n"},
    {"advice", cli_advice, "advice MODEL|config.json|LINK [key=value ...] [--gpu NAME] [--json]",
     "what to change so that it fits: each change is played",
     "The same words as `tidemark estimate`. Changes are listed by what is left; one that costs memory\n"
     "says so.\n\n"
     "  --json            the whole answer\n\n"
     "examples\n"
     "  tidemark advice llama-3.1-8b --gpu a100-40\n"},
    {"compare", cli_compare,
     "compare MODEL|config.json|LINK [key=value ...] --with key=value ...|--recording FILE [--json]",
     "two jobs side by side, or a job beside a recorded run",
     "The first job is that of `tidemark estimate`; the settings after --with are what the other one has in\n"
     "their place. Both are played, and so is every step between them: what each setting changes. With --recording, "
     "the prediction is laid beside what a process asked for (`tidemark replay "
     "--help` lists\n"
     "the kinds of recordings): where they part, by size and order.\n\n"
     "  --json            the whole answer\n\n"
     "examples\n"
     "  tidemark compare llama-2-7b batch=4 --with batch=16 checkpointing=full\n"
     "  tidemark compare llama-2-7b batch=4 --recording snapshot.pickle\n"},
    {"replay", cli_replay,
     "replay RECORDING [key=value ...] [--gpu NAME] [--device N] [--events|--state] [--bytes] [--json]",
     "a recorded run through the allocator: peaks, what lived at the peak, other options",
     "Plays what a process asked of the allocator, as it did or on another device.\n\n"
     "  RECORDING         a snapshot of torch.cuda.memory._dump_snapshot(), a trace of "
     "torch.profiler with\n"
     "                    profile_memory=True, an event file or a tidemark recording; .gz as it "
     "is; \"-\" is\n"
     "                    standard input\n"
     "  allocator=...     another PYTORCH_CUDA_ALLOC_CONF\n"
     "  --gpu NAME        another card; gpu_gib=SIZE and memory_fraction=PART as for estimate\n"
     "  --device N        of several recorded devices, not the busiest one\n" EVENT_OPTIONS
     "  --bytes           exact bytes\n"
     "  --json            the whole answer\n"
     "  --on-gpu          (first) takes on GPU 0 what the recording, or a job as for estimate, reserves, step by\n"
     "                    step: does the card have it?\n\n"
     "examples\n"
     "  tidemark replay snapshot.pickle\n"
     "  tidemark replay snapshot.pickle --gpu a100-40 allocator=expandable_segments:True\n"
     "  tidemark replay snapshot.pickle --events --filter attention\n"
     "  tidemark replay snapshot.pickle --state --at 1200\n"
     "  tidemark replay trace.json.gz --json | jq .reserved_peak\n\n"
     "exit code: 0 played; 1 it does not run on the device or with the option that was given; 2 to 4 as in `tidemark "
     "--help`\n"},
    {"dry-run", cli_dry_run,
     "dry-run [--gpu NAME] [--gpus N] [--steps N] [--world N [--rank R]] [--answer FILE:LINE=N] "
     "[--out FILE] [--bytes] [--json] -- COMMAND ...",
     "the memory of a program that runs on phantom GPUs: exact, on any Linux machine",
     "Runs the command as it is, with its own PyTorch, on GPUs that keep the books of their memory and compute "
     "nothing;\n"
     "all values there are zero. What PyTorch allocates and reserves is what it would on the card.\n\n"
     "  --gpu NAME        the card (`tidemark describe gpus`); h100-80 if not given\n"
     "  --gpus N          how many of them; 1 if not given\n"
     "  --steps N         end the program after N optimizer steps; 3 if not given, 0: let it run\n"
     "  --world N         the program is one rank of N, the others are imagined; without it, use torchrun\n"
     "  --rank R          which one; 0 if not given\n"
     "  --answer F:L=N    what line L of file F reads from the GPU; may be repeated\n"
     "  --out FILE        a recording for `tidemark replay` (of several ranks, one for each)\n"
     "  --bytes           exact bytes in place of GiB\n"
     "  --json            the answer as an object; what the program prints goes to standard error\n\n"
     "examples\n"
     "  tidemark dry-run -- python train.py\n"
     "  tidemark dry-run --gpu a100-40 --gpus 2 -- torchrun --nproc-per-node 2 train.py\n"
     "  tidemark dry-run --world 64 -- python train_fsdp.py\n\n"
     "exit code: 0 it ran and fits; 1 out of memory; 2 the command line; 3 nothing could be observed;\n"
     "4 the program failed for other reasons\n"},
    {"check", cli_check,
     "check [--estimate JOB] [--tolerance 5%] [--steps N] [--measure auto|poll] [--out FILE] [--allow-shared] [--json] "
     "-- COMMAND ...",
     "a program on real GPUs, observed and compared with an estimate",
     "Runs the command as it is and reads, at each call of the CUDA driver that takes memory, what the device holds; "
     "and what\n"
     "PyTorch itself counts.\n\n"
     "  --estimate JOB    the words of `tidemark estimate` in one, or a file of its --json (or that of dry-run)\n"
     "  --tolerance P     error allowed, 5% if not given; differences below 256 MiB are never too large\n"
     "  --tolerance-under P  error allowed where the estimate is below, 2% if not given\n"
     "  --steps N         end the program after N optimizer steps; it runs to its end if not given\n"
     "  --measure poll    without the agent in the driver: sampled every 10 ms, a lower bound\n"
     "  --out FILE        a recording for `tidemark replay`: costs some microseconds for each allocation\n"
     "  --allow-shared    compare although other processes are on the GPU\n"
     "  --bytes           exact bytes in place of GiB\n"
     "  --json            the answer as an object; what the program prints goes to standard error\n\n"
     "examples\n"
     "  tidemark check --estimate 'llama-3.2-1b --gpu h200 batch=4' -- python train.py\n"
     "  tidemark check --steps 3 --out run.tide -- torchrun --nproc-per-node 8 train.py\n\n"
     "exit code: 0 within the tolerance, or nothing to compare; 1 past it; 2 the command line; 3 nothing could be\n"
     "measured, or others were on the GPU; 4 the program failed; 5 fewer than two steps were seen\n"},
    {"doctor", cli_doctor, "doctor", "what of this machine can be measured, and how",
     "Looks at the driver, the GPUs, CUPTI, MIG and MPS, makes one context on GPU 0 for a moment, and says which way "
     "`tidemark\n"
     "check` would go.\n\n"
     "exit code: 0 a check can measure; 3 it cannot\n"},
    {"watch", cli_watch, "watch PID|--all [--for SECONDS]", "GPU memory of running processes, by the driver's count",
     "Looks once a second at what the driver says that a process and its children hold, until it ends or Ctrl-C.\n\n"
     "  --all             every process on every GPU\n"
     "  --for SECONDS     not longer\n\n"
     "exit code: 0 something was seen; 2 the command line; 3 nothing was\n"},
    {"link", cli_link, "link MODEL|config.json|LINK [key=value ...] [--base ADDRESS] [--was] [--json]",
     "the job as a link that the page opens",
     "Checks the settings and prints them in their shortest form, with the configuration where that is a file. A long\n"
     "link is compressed (#z=1.TEXT); every command that takes a job takes a LINK, with or without its address.\n\n"
     "  --base ADDRESS    where the page is; without it TIDEMARK_PAGE, or only the part from the # on\n"
     "  --was             note what the job comes to now, so that a later version can say what changed\n"
     "  --json            the readable link as an answer\n\n"
     "examples\n"
     "  tidemark link llava-1.5-7b batch=16 freeze=vision_tower --base http://127.0.0.1:8000/\n"
     "  tidemark compare '#model=gpt2&batch=4&b.batch=2&v=1'      # b.KEY is a baseline\n"},
    {"open", cli_open, "open MODEL|config.json|LINK [key=value ...] [--base ADDRESS] [--was] [--print]",
     "the job in the page, in the browser",
     "Prints the job's address and has the desktop open it.\n\n"
     "  --base ADDRESS    where the page is; without it TIDEMARK_PAGE, or the tidemark.html beside this program\n"
     "  --page FILE       that tidemark.html\n"
     "  --was             note what the job comes to now\n"
     "  --print           print the address only\n\n"
     "examples\n"
     "  tidemark open llava-1.5-7b batch=16\n"},
    {"page", cli_page, "page [--page FILE] > tidemark.html", "the page as one file that opens from disk",
     "Nothing is fetched: the file works without a network, and can be mailed or put on any host.\n\n"
     "  --page FILE       the tidemark.html that `npm run build` in web/ made, if it is not beside this program\n\n"
     "examples\n"
     "  tidemark page > tidemark.html\n"},
    {"report", cli_report, "report MODEL|config.json|LINK [key=value ...] [--gpu NAME] --html > report.html",
     "the page as one file, with a job and its answer inside",
     "What `tidemark estimate` prints can be read without scripts; with them it is the page, open on this job.\n\n"
     "  --html            the form, and the only one so far\n"
     "  --page FILE       as for `tidemark page`\n\n"
     "examples\n"
     "  tidemark report llava-1.5-7b gpu=h100-80 batch=16 --html > report.html\n\n"
     "exit code: as for estimate\n"},
    {"badge", cli_badge,
     "badge MODEL|config.json|LINK [key=value ...] [--gpu NAME] [--max SIZE] [--out FILE.svg] [--base ADDRESS]",
     "the answer as a small picture for a README, and a check for CI",
     "Prints the picture; with --out it writes it and prints the Markdown that shows it, with a link to the job.\n\n"
     "  --max SIZE        the most that it may need, as 76GiB\n"
     "  --out FILE        where the SVG goes\n"
     "  --base ADDRESS    where the page is; without it TIDEMARK_PAGE\n\n"
     "examples\n"
     "  tidemark badge '#model=llava-1.5-7b&gpu=h100-80&batch=16&v=1' --max 76GiB --out gpu-memory.svg\n\n"
     "exit code: 0 it fits; 1 it does not, or needs more than --max; 2 to 4 as in `tidemark --help`\n"},
    {"call", cli_call, "call [FILE] [--lines]", "a request in JSON from FILE or standard input, the answer as it is",
     "The one door of the library, for scripts and for tests.\n\n"
     "  --lines           each line is a request, and is answered by a line\n\n"
     "examples\n"
     "  echo '{\"call\":\"version\"}' | tidemark call\n"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static const command *command_find(const char *name) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

void cli_help(FILE *out, const char *name) {
    const command *one = name ? command_find(name) : NULL;
    if (one) {
        fprintf(out, "tidemark %s\n\n%s\n", one->usage, one->help);
        return;
    }
    fputs("tidemark: how much GPU memory a training job needs, before it runs\n\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\nstart here\n"
          "  tidemark estimate llava-1.5-7b --gpu h100-80 batch=16 seq=1024 freeze=vision_tower\n"
          "  tidemark describe settings          what can be set: batch=16, checkpointing=full, ...\n"
          "  tidemark estimate --help            each command has help and examples\n\n"
          "exit codes\n"
          "  0  done; for estimate: it fits, or no card is given\n"
          "  1  estimate: it does not fit; verify: an error is past the tolerance\n"
          "  2  the command line, a setting or a file's content is wrong\n"
          "  3  no memory, or a fault of tidemark\n"
          "  4  a file cannot be read or written\n\n"
          "Colour is used on a terminal only, and not if NO_COLOR is set. No file but those named is "
          "read,\n"
          "and nothing is sent anywhere.\n",
          out);
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        cli_help(stderr, NULL);
        return CLI_BAD_INPUT;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        cli_help(stdout, argc > 2 ? argv[2] : NULL);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        puts("tidemark " TIDEMARK_VERSION);
        return CLI_OK;
    }
    const command *chosen = command_find(name);
    if (!chosen) {
        cli_complain("`tidemark --help` lists the commands; an estimate is `tidemark estimate MODEL`",
                     "no command \"%s\"", name);
        return CLI_BAD_INPUT;
    }
    return chosen->run(argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    cli_screen_init();
    int status = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (status == CLI_OK) status = CLI_NO_FILE;
    }
    return status;
}
