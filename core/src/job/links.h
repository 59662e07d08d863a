/* Links: a job as `key=value&...&v=1`, the part of an address after its #. */
#ifndef TIDE_LINKS_H
#define TIDE_LINKS_H

#include "job/job.h"

enum {
    TIDE_LINK_VERSION = 1,           /* of the grammar and of the table of defaults */
    TIDE_LINK_READ_LIMIT = 256 << 10 /* bytes; an inflated link is no longer */
};

/* What a page that opens a link shows; "" each: it says nothing of that. It has no effect on the answer. */
typedef struct tide_link_view {
    tide_text view;  /* the panel that is open */
    tide_text sel;   /* what is chosen in it */
    tide_text sweep; /* the axes of a heat map */
} tide_link_view;

/* What stands in a link. */
typedef struct tide_link {
    tide_text *words; /* "name=value", canonical names, values that can be read */
    uint32_t word_count;
    tide_text *baseline;     /* b.KEY: the whole job of the baseline, as words */
    uint32_t baseline_count; /* 0: none */
    tide_file files[3];      /* config=, preprocessor=, description=: the content of files */
    uint32_t file_count;
    tide_text was; /* "61.8_0.1.0": GiB and version when it was made; "" */
    tide_link_view view;
} tide_link;

/* Forgiving: an unknown key, a value that cannot be read, a link that was cut or is newer are warnings at /link, and
 * what is left is read. `text` may be a whole address; one level of percent-encoding too many is taken off. */
void tide_link_read(tide_arena *arena, tide_text text, tide_link *link, tide_diagnostics *diags);

/* The words of a link and those that are given besides, which hold over it. */
uint32_t tide_link_join(tide_arena *arena, const tide_link *link, const tide_text *words, uint32_t count,
                        tide_text **joined);

/* The job's link: what differs from the defaults, and the content of the files it came from; "v=1" last. */
const char *tide_link_write(tide_arena *arena, const tide_job *job);

/* The same with "b.KEY=VALUE" for what `baseline` has in another way (NULL: none), with view=, sel= and sweep= (NULL:
 * none of them), and with was= ("": without). */
const char *tide_link_write_more(tide_arena *arena, const tide_job *job, const tide_job *baseline,
                                 const tide_link_view *view, tide_text was);

#endif
