/* Texts of models/ that are in the pack. */
#include "sources.h"

const char *tide_pack;
bool tide_pack_is_missed;

tide_source tide_source_whole(tide_arena *arena, const tide_source *source) {
    tide_source whole = *source;
    if (!source->pack_length) return whole;
    if (!tide_pack) {
        tide_pack_is_missed = true;
        tide_arena_fail(arena);
    }
    whole.text = tide_pack + source->pack_at;
    whole.length = source->pack_length;
    return whole;
}
