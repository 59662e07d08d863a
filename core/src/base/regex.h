/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions for names of modules and parameters, as in Python's re. */
#ifndef TIDE_BASE_REGEX_H
#define TIDE_BASE_REGEX_H

#include "base/text.h"

typedef enum tide_match {
    TIDE_MATCH_NO,
    TIDE_MATCH_YES,
    TIDE_MATCH_WRONG, /* the pattern is not supported, or takes too long */
} tide_match;

/* Whether the pattern matches the whole text. Supported: . [] [^] \d \w \s and escaped characters, * + ? {m,n} with
 * lazy forms, |, (...), (?:...), (?P<name>...), (?=...), (?!...), ^ and $. */
tide_match tide_regex_covers(tide_text pattern, tide_text text);

/* Whether it matches the beginning of the text: re.match. */
tide_match tide_regex_begins(tide_text pattern, tide_text text);

#endif
