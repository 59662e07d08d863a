/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of `tidemark`, and its help. */
#include "cli.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>
#include <tidemark/tidemark.h>

static const cli_command *const commands[] = {
#define COMMAND(name) &cli_##name##_command,
#include "commands.def"
#undef COMMAND
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

/* `tidemark gpus` is also called "cards". */
static const cli_command *command_find(const char *name) {
    if (strcmp(name, "cards") == 0) name = "gpus";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static const char general_help[] =
    "\nstart here\n"
    "  tidemark estimate llava-1.5-7b --gpu h100-80 batch=16 seq=1024 freeze=vision_tower\n"
    "  tidemark describe settings          what can be set: batch=16, checkpointing=full, ...\n"
    "  tidemark estimate --help            each command has help and examples\n\n"
    "exit codes\n"
    "  0  done; for estimate: it fits, or no GPU is given\n"
    "  1  estimate: it does not fit; verify: an error is past the tolerance\n"
    "  2  the command line, a setting or a file's content is wrong\n"
    "  3  no memory, or a fault of tidemark\n"
    "  4  a file cannot be read or written\n\n"
    "Colour is used on a terminal only, and not if NO_COLOR is set. No file but those named is "
    "read,\n"
    "and nothing is sent anywhere.\n";

void cli_help(FILE *out, const char *name) {
    const cli_command *one = name ? command_find(name) : NULL;
    if (one) {
        fprintf(out, "tidemark %s\n\n%s\n", one->usage, one->help);
        return;
    }
    fputs("tidemark: how much GPU memory a training or inference job needs, before it runs\n\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    fputs(general_help, out);
}

/* ---- the manual page: what --help says, as roff for man(7) ---- */

/* Text for roff: backslashes and hyphens are escaped, and no line is taken for a request. */
static void roff_text(const char *text) {
    for (const char *c = text; *c; c++) {
        if ((c == text || c[-1] == '\n') && (*c == '.' || *c == '\'')) fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(*c);
    }
}

static void roff_lines(const char *text) {
    puts(".nf");
    roff_text(text);
    puts("\n.fi");
}

static void manual_page(void) {
    puts(".TH TIDEMARK 1 \"\" \"tidemark " TIDEMARK_VERSION "\"\n.SH NAME\n"
         "tidemark \\- how much GPU memory a training or inference job needs, before it runs\n.SH SYNOPSIS\n"
         ".B tidemark\n.I command\n[words and options]\n.SH COMMANDS");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        printf(".SS ");
        roff_text(commands[i]->name);
        printf("\n.B tidemark ");
        roff_text(commands[i]->usage);
        puts("\n.PP");
        roff_text(commands[i]->summary);
        puts("\n.PP");
        roff_lines(commands[i]->help);
    }
    puts(".SH GENERAL");
    roff_lines(general_help);
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
    if (strcmp(name, "--man") == 0) {
        manual_page();
        return CLI_OK;
    }
    const cli_command *chosen = command_find(name);
    if (!chosen) {
        cli_complain("`tidemark --help` lists the commands; an estimate is `tidemark estimate MODEL`",
                     "no command \"%s\"", name);
        return CLI_BAD_INPUT;
    }
    return chosen->run(argc - 2, argv + 2);
}

/* The jobs of a sweep use the same memory one after the other: by default glibc returns the top of the heap after each,
 * and the system zeroes it again. */
static void keep_the_heap(void) {
#if defined M_TRIM_THRESHOLD && defined M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the maximum of mallopt(3) */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

int main(int argc, char **argv) {
    keep_the_heap();
    cli_screen_init();
    int status = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_complain(NULL, "could not write everything to standard output");
        if (status == CLI_OK) status = CLI_NO_FILE;
    }
    return status;
}
