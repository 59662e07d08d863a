/* SPDX-License-Identifier: Apache-2.0 */
/* The page from the command line: `page` writes it as one file, `report` likewise with a job and its answer inside,
 * `open` shows a job in the browser, `badge` draws the answer in a small picture. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "estimate.h"

extern char **environ;

/* ---- where the page is ---- */

/* The folder of this program, with a slash; "" if the system does not tell. */
static void own_folder(cli_buffer *folder) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    cli_append(folder, path, (size_t)(strrchr(path, '/') + 1 - path));
}

/* tidemark.html, made by `npm run build` in web/: given by --page, or next to this program. False after an error
 * message. */
static bool find_page(cli_buffer *path, const char *named) {
    static const char *const places[] = {"tidemark.html", "../share/tidemark/tidemark.html", "../page/tidemark.html"};
    cli_buffer folder = {0};
    if (named) {
        cli_append_text(path, named);
        return true;
    }
    own_folder(&folder);
    for (size_t i = 0; folder.length && i < sizeof places / sizeof *places; i++) {
        path->length = 0;
        cli_format(path, "%s%s", folder.at, places[i]);
        if (cli_is_file(path->at)) {
            cli_buffer_free(&folder);
            return true;
        }
    }
    cli_complain(
        "build it with `npm run build` in web/, put tidemark.html beside the program, or name it with --page FILE",
        "the page was not found: no tidemark.html in %s, ../share/tidemark or ../page",
        folder.length ? folder.at : "this program's folder");
    cli_buffer_free(&folder);
    return false;
}

/* Returns an exit code, and the text of the page. */
static int read_page(cli_buffer *html, const char *named) {
    cli_buffer path = {0};
    int status = find_page(&path, named) ? CLI_OK : CLI_NO_FILE;
    if (status == CLI_OK && !cli_read_file(html, path.at)) status = CLI_NO_FILE;
    cli_buffer_free(&path);
    return status;
}

/* ---- page ---- */

static int cli_page(int argc, char **argv) {
    cli_arguments arguments;
    cli_buffer html = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_PAGE);
    if (status == CLI_OK && arguments.shows_help)
        cli_help(stdout, "page");
    else if (status == CLI_OK)
        status = read_page(&html, arguments.page);
    if (html.length) fwrite(html.at, 1, html.length, stdout);
    cli_buffer_free(&html);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_page_command = {
    "page", cli_page, "page [--page FILE] > tidemark.html", "the page as one file that opens from disk",
    "Nothing is fetched: the file works without a network, and can be mailed or put on any host.\n\n"
    "  --page FILE       the tidemark.html that `npm run build` in web/ made, if it is not beside this program\n\n"
    "examples\n"
    "  tidemark page > tidemark.html\n"};

/* ---- report ---- */

static void append_escaped(cli_buffer *out, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const char *escape = text[i] == '&' ? "&amp;" : text[i] == '<' ? "&lt;" : text[i] == '>' ? "&gt;" : NULL;
        if (escape)
            cli_append_text(out, escape);
        else
            cli_append(out, text + i, 1);
    }
}

/* The output of `tidemark estimate`, as text. */
static bool printed_report(cli_buffer *text, const cJSON *answer) {
    FILE *file = tmpfile();
    int screen = dup(STDOUT_FILENO);
    if (!file || screen < 0) {
        cli_complain(NULL, "no temporary file: %s", strerror(errno));
        if (file) fclose(file);
        return false;
    }
    fflush(stdout);
    dup2(fileno(file), STDOUT_FILENO);
    cli_screen_plain();
    cli_report_show(answer, false);
    fflush(stdout);
    dup2(screen, STDOUT_FILENO);
    close(screen);
    rewind(file);
    bool is_read = cli_read_stream(text, file, "the report");
    fclose(file);
    return is_read;
}

/* Replaces the page's content between two marks; false if the marks are missing. */
static bool replace_between(cli_buffer *html, const char *from, const char *to, const cli_buffer *content) {
    char *start = strstr(html->at, from), *end = start ? strstr(start, to) : NULL;
    if (!end) return false;
    cli_buffer whole = {0};
    cli_append(&whole, html->at, (size_t)(start - html->at));
    cli_append(&whole, content->at, content->length);
    cli_append_text(&whole, end + strlen(to));
    cli_buffer_free(html);
    *html = whole;
    return true;
}

static int put_report(cli_buffer *html, const cJSON *answer) {
    cli_buffer text = {0}, app = {0}, job = {0}, link = {0};
    const char *title = cli_text_at(cli_at(answer, "model"), "title");
    if (!printed_report(&text, answer)) return CLI_NO_FILE;
    cli_append_text(&app, "<main class=\"report\"><h1>");
    append_escaped(&app, title, strlen(title));
    cli_append_text(&app, "</h1><pre>");
    append_escaped(&app, text.at, text.length);
    cli_append_text(&app, "</pre></main>");
    cli_append_text(&job, "<script type=\"text/plain\" id=\"job\">");
    if (cli_link_pack(&link, cli_text_at(answer, "link"))) cli_append_text(&job, link.at);
    cli_append_text(&job, "</script>");
    bool is_page =
        replace_between(html, "<!--app-->", "<!--/app-->", &app) && replace_between(html, "<!--job-->", "\n", &job);
    if (!is_page) cli_complain("give the tidemark.html of this version", "the file is not the page");
    cli_buffer_free(&text);
    cli_buffer_free(&app);
    cli_buffer_free(&job);
    cli_buffer_free(&link);
    return is_page ? CLI_OK : CLI_BAD_INPUT;
}

/* Requests the job's estimate. */
static int ask_estimate(cli_answer *answer, const cli_arguments *arguments) {
    cli_buffer request = {0};
    int status = cli_request(&request, "estimate", arguments, ",\"options\":true");
    if (status == CLI_OK) status = cli_ask_or_explain(answer, &request, false);
    cli_buffer_free(&request);
    return status;
}

static int exit_of(const cJSON *answer) {
    return cli_may_fit(answer) ? CLI_OK : CLI_NO;
}

static int cli_report(int argc, char **argv) {
    cli_arguments arguments;
    cli_answer answer = {0};
    cli_buffer html = {0};
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_PAGE | CLI_TAKES_HTML | CLI_TAKES_SETTINGS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "report");
    } else if (status == CLI_OK) {
        status = read_page(&html, arguments.page);
        if (status == CLI_OK) status = ask_estimate(&answer, &arguments);
        if (status == CLI_OK) status = put_report(&html, answer.json);
        if (status == CLI_OK) {
            fwrite(html.at, 1, html.length, stdout);
            status = exit_of(answer.json);
        }
    }
    cli_answer_free(&answer);
    cli_buffer_free(&html);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_report_command = {
    "report", cli_report, "report MODEL|config.json|LINK [key=value ...] [--gpu NAME] --html > report.html",
    "the page as one file, with a job and its answer inside",
    "What `tidemark estimate` prints can be read without scripts; with them it is the page, open on this job.\n\n"
    "  --html            the form, and the only one so far\n"
    "  --page FILE       as for `tidemark page`\n\n"
    "examples\n"
    "  tidemark report llava-1.5-7b gpu=h100-80 batch=16 --html > report.html\n\n"
    "exit code: as for estimate\n"};

/* ---- open ---- */

/* Whether a program of the desktop opened the address. */
static bool show_address(char *address) {
    char name[] = "xdg-open", *const argv[] = {name, address, NULL};
    pid_t child;
    int ended = 1;
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    bool is_started = posix_spawnp(&child, name, &quiet, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&quiet);
    return is_started && waitpid(child, &ended, 0) == child && ended == 0;
}

/* --base, TIDEMARK_PAGE, or the file beside this program. */
static int base_address(cli_buffer *base, const cli_arguments *a) {
    const char *named = a->base ? a->base : getenv("TIDEMARK_PAGE");
    cli_buffer path = {0};
    int status = CLI_OK;
    if (named && *named) {
        cli_append_text(base, named);
        return CLI_OK;
    }
    if (!find_page(&path, a->page)) return CLI_NO_FILE;
    char *whole = realpath(path.at, NULL);
    if (whole)
        cli_format(base, "file://%s", whole);
    else
        cli_complain(NULL, "%s: %s", path.at, strerror(errno)), status = CLI_NO_FILE;
    free(whole);
    cli_buffer_free(&path);
    return status;
}

static int cli_open(int argc, char **argv) {
    cli_arguments arguments;
    cli_answer answer = {0};
    cli_buffer request = {0}, base = {0}, address = {0};
    int status = cli_arguments_read(&arguments, argc, argv,
                                    CLI_TAKES_PAGE | CLI_TAKES_BASE | CLI_TAKES_PRINT | CLI_TAKES_SETTINGS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "open");
    } else if (status == CLI_OK) {
        status = base_address(&base, &arguments);
        if (status == CLI_OK)
            status = cli_request(&request, "link", &arguments, arguments.notes_was ? ",\"was\":true" : "");
        if (status == CLI_OK) status = cli_ask_or_explain(&answer, &request, false);
        if (status == CLI_OK) cli_address(&address, base.at, cli_text_at(answer.json, "link"));
        if (status == CLI_OK && !address.length) status = CLI_BAD_INPUT;
        if (status == CLI_OK) puts(address.at);
        if (status == CLI_OK && !arguments.prints && !show_address(address.at))
            cli_complain("open the address above", "no browser was found (xdg-open)");
    }
    cli_answer_free(&answer);
    cli_buffer_free(&request);
    cli_buffer_free(&base);
    cli_buffer_free(&address);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_open_command = {
    "open", cli_open, "open MODEL|config.json|LINK [key=value ...] [--base ADDRESS] [--was] [--print]",
    "the job in the page, in the browser",
    "Prints the job's address and has the desktop open it.\n\n"
    "  --base ADDRESS    where the page is; without it TIDEMARK_PAGE, or the tidemark.html beside this program\n"
    "  --page FILE       that tidemark.html\n"
    "  --was             note what the job comes to now\n"
    "  --print           print the address only\n\n"
    "examples\n"
    "  tidemark open llava-1.5-7b batch=16\n"};

/* ---- badge ---- */

/* "76GiB", "76 GB", "77824MiB" or bytes; -1 if it is not a size. */
static int64_t size_of(const char *text) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"GB", 1e9}, {"MB", 1e6}, {"B", 1}, {"", 1}};
    char *end;
    double value = strtod(text, &end);
    while (*end == ' ') end++;
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].unit) == 0 && value >= 0 && value * units[i].bytes < 9e15)
            return (int64_t)(value * units[i].bytes);
    return -1;
}

typedef struct badge {
    cli_buffer text; /* "69.3 of 79.2 GiB, fits" */
    const char *colour;
    bool is_good;
} badge;

/* If less than this percentage of the GPU is left it is close, as on the page (web/src/ui/Verdict.jsx, CLOSE). */
enum { CLOSE_PERCENT = 3 };

static void badge_say(badge *b, const cJSON *answer, int64_t most, const char *most_text) {
    const cJSON *verdict = cli_at(answer, "verdict"), *fits = cli_at(verdict, "fits");
    int64_t device = cli_int_at(verdict, "device_bytes"), gpu = cli_int_at(verdict, "gpu_bytes");
    cli_number need, whole;
    bool is_over = most >= 0 && device > most, is_close = gpu && (gpu - device) * 100 < CLOSE_PERCENT * gpu,
         is_open = gpu && !cJSON_IsBool(fits);
    b->is_good = !is_over && cli_may_fit(answer);
    b->colour = is_over || cJSON_IsFalse(fits)    ? "#b42318"
                : is_open || is_close             ? "#9a5b00"
                : cJSON_IsTrue(fits) || most >= 0 ? "#17753a"
                                                  : "#1f5fbf";
    cli_gib(need, device);
    if (is_over)
        cli_format(&b->text, "%.*s GiB, over %s", (int)strlen(need) - 1, need, most_text);
    else if (gpu)
        cli_format(&b->text, "%.*s of %s, %s", (int)strlen(need) - 1, need, cli_size(whole, gpu),
                   cJSON_IsFalse(fits) ? "does not fit"
                   : is_open           ? "cannot tell"
                   : is_close          ? "barely fits"
                                       : "fits");
    else
        cli_format(&b->text, "%.*s GiB", (int)strlen(need) - 1, need);
}

/* Both halves have room for their text in 11 px of a common sans-serif font. */
static void badge_draw(cli_buffer *svg, const badge *b) {
    static const char label[] = "GPU memory";
    int left = 10 + (int)(6.6 * (double)strlen(label)), right = 10 + (int)(6.3 * (double)b->text.length),
        whole = left + right;
    cli_format(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"20\" role=\"img\" aria-label=\"%s: "
        "%s\"><title>%s: %s</title>"
        "<clipPath id=\"r\"><rect width=\"%d\" height=\"20\" rx=\"4\"/></clipPath>"
        "<g clip-path=\"url(#r)\"><rect width=\"%d\" height=\"20\" fill=\"#39424e\"/><rect x=\"%d\" width=\"%d\" "
        "height=\"20\" fill=\"%s\"/></g>"
        "<g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\" text-anchor=\"middle\">"
        "<text x=\"%d\" y=\"14\" textLength=\"%d\">%s</text><text x=\"%d\" y=\"14\" "
        "textLength=\"%d\">%s</text></g></svg>\n",
        whole, label, b->text.at, label, b->text.at, whole, left, left, right, b->colour, left / 2, left - 10, label,
        left + right / 2, right - 10, b->text.at);
}

static int badge_write(const cli_arguments *a, const badge *b, const char *link) {
    cli_buffer svg = {0}, address = {0};
    const char *base = a->base ? a->base : getenv("TIDEMARK_PAGE");
    int status = CLI_OK;
    badge_draw(&svg, b);
    FILE *file = a->out ? fopen(a->out, "wb") : stdout;
    if (!file || fwrite(svg.at, 1, svg.length, file) != svg.length || (a->out && fclose(file) != 0)) {
        cli_complain(NULL, "%s: %s", a->out ? a->out : "standard output", strerror(errno));
        status = CLI_NO_FILE;
    } else if (a->out) {
        cli_address(&address, base && *base ? base : "tidemark.html", link);
        printf("[![GPU memory: %s](%s)](%s)\n", b->text.at, cli_base_name(a->out),
               address.length ? address.at : "tidemark.html");
    }
    cli_buffer_free(&svg);
    cli_buffer_free(&address);
    return status;
}

static int cli_badge(int argc, char **argv) {
    cli_arguments arguments;
    cli_answer answer = {0};
    badge b = {0};
    int64_t most = -1;
    int status = cli_arguments_read(&arguments, argc, argv, CLI_TAKES_BADGE | CLI_TAKES_BASE | CLI_TAKES_SETTINGS);
    if (status == CLI_OK && arguments.shows_help) {
        cli_help(stdout, "badge");
        cli_arguments_free(&arguments);
        return CLI_OK;
    }
    if (status == CLI_OK && arguments.most && (most = size_of(arguments.most)) < 0) {
        cli_complain("write a size, such as --max 76GiB", "--max \"%s\" is not a size", arguments.most);
        status = CLI_BAD_INPUT;
    }
    if (status == CLI_OK) status = ask_estimate(&answer, &arguments);
    if (status == CLI_OK) {
        badge_say(&b, answer.json, most, arguments.most);
        status = badge_write(&arguments, &b, cli_text_at(answer.json, "link"));
        if (status == CLI_OK && !b.is_good) status = CLI_NO;
        if (status == CLI_NO) cli_complain(NULL, "GPU memory: %s", b.text.at);
    }
    cli_buffer_free(&b.text);
    cli_answer_free(&answer);
    cli_arguments_free(&arguments);
    return status;
}

const cli_command cli_badge_command = {
    "badge", cli_badge,
    "badge MODEL|config.json|LINK [key=value ...] [--gpu NAME] [--max SIZE] [--out FILE.svg] [--base ADDRESS]",
    "the answer as a small picture for a README, and a check for CI",
    "Prints the picture; with --out it writes it and prints the Markdown that shows it, with a link to the job.\n\n"
    "  --max SIZE        the most that it may need, as 76GiB\n"
    "  --out FILE        where the SVG goes\n"
    "  --base ADDRESS    where the page is; without it TIDEMARK_PAGE\n\n"
    "examples\n"
    "  tidemark badge '#model=llava-1.5-7b&gpu=h100-80&batch=16&v=1' --max 76GiB --out gpu-memory.svg\n\n"
    "exit code: 0 it fits; 1 it does not, or needs more than --max; 2 to 4 as in `tidemark --help`\n"};
