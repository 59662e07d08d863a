/* SPDX-License-Identifier: Apache-2.0 */
/* `tidemark serve`, and the output of mode=serve: what an inference server leaves for requests, and how many fit. */
#include <string.h>

#include "estimate.h"

enum { SIZES = 3 }; /* of engine_args: lengths and counts, after the dtype */

static void budget_row(cli_table *table, const char *name, int64_t bytes) {
    cli_number text;
    cli_table_cell(table, name);
    cli_table_cell(table, cli_gib(text, bytes));
}

static void budget_show(const cJSON *answer) {
    cli_table table;
    cli_heading("The engine's budget, GiB");
    cli_table_init(&table, 2);
    cli_table_cell(&table, "");
    cli_table_cell(&table, "GiB");
    budget_row(&table, "GPU memory × gpu_memory_utilization", cli_int_at(answer, "requested"));
    budget_row(&table, "weights and buffers kept after the profile run", -cli_int_at(answer, "consumed"));
    budget_row(&table, "peak of the profile run above these", -cli_int_at(answer, "transient"));
    if (cli_int_at(answer, "graphs"))
        budget_row(&table, "CUDA graphs, as the engine estimates them", -cli_int_at(answer, "graphs"));
    cli_table_rule(&table);
    budget_row(&table, "left for the KV cache", cli_int_at(answer, "available"));
    cli_table_print(&table);
}

static void groups_show(const cJSON *answer) {
    static const char *const heads[] = {"Cache", "Layers", "Tokens per block", "Page, bytes",
                                        "Blocks of the longest request"};
    const cJSON *group;
    cli_table table;
    cli_number text;
    cli_heading("Cache groups");
    cli_table_init(&table, 5);
    for (size_t i = 0; i < 5; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(group, cli_at(answer, "groups")) {
        cli_table_cell(&table, cli_text_at(group, "kind"));
        cli_table_cell(&table, cli_count(text, cli_int_at(group, "layers")));
        cli_table_cell(&table, cli_count(text, cli_int_at(group, "block_size")));
        cli_table_cell(&table, cli_count(text, cli_int_at(group, "page_bytes")));
        cli_table_cell(&table, cli_count(text, cli_int_at(group, "blocks_per_request")));
    }
    cli_table_print(&table);
}

static void requests_show(const cJSON *answer) {
    const cJSON *row;
    cli_table table;
    cli_number text;
    cli_heading("Requests that always fit at once");
    cli_table_init(&table, 2);
    cli_table_cell(&table, "Tokens, in and out");
    cli_table_cell(&table, "Requests");
    cJSON_ArrayForEach(row, cli_at(answer, "requests")) {
        cli_table_cell(&table, cli_count(text, cli_int_at(row, "tokens")));
        cli_table_cell(&table, cli_count(text, cli_int_at(row, "fit")));
    }
    cli_table_print(&table);
}

/* The longest request that fits, the GPUs needed for the load, and the command. */
static void plan_show(const cJSON *answer) {
    const cJSON *longest = cli_at(answer, "longest"), *smallest = cli_at(answer, "smallest");
    cli_number one, all, cards, servers, ranks, requests;
    putchar('\n');
    if (cli_int_at(longest, "of_one"))
        printf("  The longest request that fits has %s tokens.\n", cli_count(one, cli_int_at(longest, "of_one")));
    if (cli_int_at(longest, "of_max_concurrency"))
        printf("  All of them fit at once with up to %s tokens each.\n",
               cli_count(all, cli_int_at(longest, "of_max_concurrency")));
    if (cJSON_IsNull(smallest)) puts("  No number of these GPUs up to 16 starts the engine.");
    if (cJSON_IsObject(smallest))
        printf("  %s of these GPUs %s: tensor_parallel_size %s, %s %s, %s requests. `tidemark gpus` compares others.\n",
               cli_count(cards, cli_int_at(smallest, "cards")),
               cli_int_at(smallest, "asked") ? "hold them all" : "start it",
               cli_count(ranks, cli_int_at(smallest, "tensor_parallel_size")),
               cli_count(servers, cli_int_at(smallest, "servers")),
               cli_int_at(smallest, "servers") == 1 ? "server" : "servers",
               cli_count(requests, cli_int_at(smallest, "requests")));
    printf("  %s\n", cli_text_at(cli_at(smallest, "command") ? smallest : answer, "command"));
}

static void levers_show(const cJSON *answer) {
    static const char *const heads[] = {"Flag", "More cache, GiB", "Tokens", "Requests"};
    const cJSON *row;
    cli_table table;
    cli_number text;
    if (!cJSON_GetArraySize(cli_at(answer, "levers"))) return;
    cli_heading("What flags buy");
    cli_table_init(&table, 4);
    for (size_t i = 0; i < 4; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(row, cli_at(answer, "levers")) {
        cli_table_cell(&table, cli_text_at(row, "flag"));
        cli_table_cell(&table, cli_gib(text, cli_int_at(row, "cache_bytes")));
        cli_table_cell(&table, cli_count(text, cli_int_at(row, "tokens")));
        cli_table_cell(&table, cli_count(text, cli_int_at(row, "fit")));
    }
    cli_table_print(&table);
}

/* For an engine that allocates its buffers directly. */
static void buffers_show(const cJSON *answer) {
    const cJSON *buffer;
    cli_table table;
    cli_number text;
    cli_heading("Buffers, GiB");
    cli_table_init(&table, 4);
    static const char *const heads[] = {"Buffer", "On the", "At least", "At most"};
    for (size_t i = 0; i < 4; i++) cli_table_cell(&table, heads[i]);
    cJSON_ArrayForEach(buffer, cli_at(answer, "buffers")) {
        cli_table_cell(&table, cli_text_at(buffer, "name"));
        cli_table_cell(&table, strcmp(cli_text_at(buffer, "place"), "host") ? "GPU" : "host");
        cli_table_cell(&table, cli_gib(text, cli_int_at(buffer, "low")));
        cli_table_cell(&table, cli_gib(text, cli_int_at(buffer, "high")));
    }
    cli_table_cell(&table, "context and kernels");
    cli_table_cell(&table, "GPU");
    int64_t context = cli_int_at(cli_at(answer, "card"), "context");
    cli_table_cell(&table, cli_gib(text, context));
    cli_table_cell(&table, cli_gib(text, context));
    cli_table_print(&table);
}

static void verdict_show(const cJSON *report) {
    const cJSON *answer = cli_at(report, "serving"), *verdict = cli_at(report, "verdict");
    bool fits = cli_true_at(verdict, "fits");
    cli_number blocks, bytes, most;
    printf("\n  %s", cli_styled(fits ? CLI_GREEN : CLI_RED));
    cli_wrapped(cli_text_at(verdict, "sentence"), 2, 2);
    fputs(cli_styled_end(), stdout);
    if (cli_int_at(answer, "blocks") && cli_int_at(answer, "block_bytes") && !cli_at(answer, "buffers"))
        printf("  %s blocks of %s bytes\n", cli_count(blocks, cli_int_at(answer, "blocks")),
               cli_count(bytes, cli_int_at(answer, "block_bytes")));
    if (cli_int_at(answer, "blocks_at_least"))
        printf("  between %s and %s, see below\n", cli_count(blocks, cli_int_at(answer, "blocks_at_least")),
               cli_count(most, cli_int_at(answer, "blocks_at_most")));
}

static void card_show(const cJSON *answer) {
    const cJSON *card = cli_at(answer, "card");
    cli_number context, tables, logits;
    cli_heading("Outside of the budget");
    printf("  %s of context and kernels, %s of block tables, up to %s of fp32 logits with penalties or logprobs\n",
           cli_size(context, cli_int_at(card, "context")), cli_size(tables, cli_int_at(card, "block_tables")),
           cli_size(logits, cli_int_at(card, "logits_fp32")));
    if (cli_int_at(card, "other_servers"))
        printf("  %s of the other servers on the GPU: the figures are of one, requests of all\n",
               cli_size(context, cli_int_at(card, "other_servers")));
}

void cli_server_show(const cJSON *report) {
    const cJSON *answer = cli_at(report, "serving"), *settings = cli_at(answer, "engine_args");
    const char *gpu = cli_text_at(cli_at(report, "gpu"), "title");
    cli_number number, memory;
    cli_buffer pinned = {0};
    const cJSON *first = cJSON_GetArraySize(settings) ? settings->child : NULL;
    cli_add_pinned(&pinned, cli_at(report, "versions"));
    printf("%s%s%s on %s, %s%s\n", cli_styled(CLI_BOLD), cli_text_at(cli_at(report, "model"), "title"),
           cli_styled_end(), gpu[0] ? gpu : cli_size(memory, cli_int_at(cli_at(answer, "card"), "total")),
           cli_text_at(answer, "engine"), pinned.length ? pinned.at : "");
    cli_buffer_free(&pinned);
    printf("%s", cli_text_at(settings, "dtype"));
    for (int i = 1; i <= SIZES && first && (first = first->next); i++)
        printf(", %s %s", first->string, cli_count(number, cli_int(first)));
    puts("");
    verdict_show(report);
    if (cli_at(answer, "buffers")) {
        buffers_show(answer);
        groups_show(answer);
        requests_show(answer);
        printf("\n  %s\n", cli_text_at(answer, "command"));
        return;
    }
    bool has_cache = cli_int_at(answer, "block_bytes") || !cli_int_at(answer, "blocks");
    if (has_cache && cli_int_at(answer, "consumed")) budget_show(answer);
    if (has_cache && cli_int_at(answer, "blocks")) {
        groups_show(answer);
        requests_show(answer);
        card_show(answer);
    }
    if (cli_int_at(answer, "blocks") || cli_at(answer, "smallest")) plan_show(answer);
    if (has_cache) levers_show(answer);
}

static int cli_serve(int argc, char **argv) {
    return cli_estimate_of(argc, argv, "serve", "mode=serve");
}

const cli_command cli_serve_command = {
    "serve", cli_serve, "serve MODEL|config.json|LINK --gpu NAME [key=value ...] [--json]",
    "an inference server: what is left for the cache, and how many requests fit",
    "Starts vLLM 0.32.0 with shapes in place of numbers: its buffers, the weights in its own layers, the run that it\n"
    "measures, its budget, its cache groups and blocks. Settings have vLLM's names, as key=value or as its "
    "options.\n\n"
    "  --gpu NAME        the GPU (`tidemark describe gpus`)\n"
    "  input_len=N output_len=N   tokens of a request; without them, a ladder of lengths\n"
    "  request_lengths=MIX        several lengths: 1000:70,8000:30, or by percentiles p50:1000,p99:8000\n"
    "  vllm serve ...             a server's command as it is pasted, beside --gpu and the like\n"
    "  concurrency=N              requests that are to fit: how many GPUs hold them is said, and which flags help\n"
    "  replicas=N                 servers on the same GPU\n"
    "  --json            the whole answer\n\n"
    "examples\n"
    "  tidemark serve llama-3.1-8b --gpu l40s max_model_len=8192 concurrency=64\n"
    "  tidemark serve qwen3-30b-a3b --gpu h100-80 tensor_parallel_size=2 enable_expert_parallel=true\n"
    "  tidemark serve gemma-2-9b --gpu a100-40 enforce_eager=true input_len=3000 output_len=500\n\n"
    "exit code: 0 the engine starts; 1 it refuses; 2 to 4 as in `tidemark --help`\n"};
