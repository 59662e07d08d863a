/* SPDX-License-Identifier: Apache-2.0 */
#include "job/readers/key_values.h"

bool tide_key_value_listed(const char *list, const char *value, tide_text *taken, bool *is_near) {
    tide_text rest = tide_text_of(list), piece;
    while (tide_piece_next(&rest, '|', &piece)) {
        size_t length = 0;
        while (length < piece.length && piece.at[length] != '=' && piece.at[length] != '~') length++;
        bool has_taken = length < piece.length;
        if (!tide_text_matches(tide_text_of(value), (tide_text){piece.at, length})) continue;
        if (taken)
            *taken = has_taken ? (tide_text){piece.at + length + 1, piece.length - length - 1} : tide_text_of("");
        if (is_near) *is_near = has_taken && piece.at[length] == '~';
        return true;
    }
    return false;
}
