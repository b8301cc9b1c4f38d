// Names in string tables. names.py says what each takes and gives; nothing is checked here.

#include "kernels.h"

#define WORD 8
#define AHEAD 8 // names whose memory is asked for before their turn, since they lie anywhere

// The bytes from `at` on, and those behind the table's end as NUL.
static inline uint64_t bytes_from(const uint8_t *table, int64_t size, int64_t at)
{
    if (at + WORD <= size)
        return word_at(table + at);
    uint64_t word = 0;
    for (int64_t i = at; i < size; i++)
        word |= (uint64_t)table[i] << 8 * (i - at);
    return word;
}

EXPORT int hash_names(const uint8_t *table, int64_t size, const int64_t *starts, int64_t count, int64_t room,
                      uint32_t *hashes)
{
    for (int64_t i = 0; i < count; i++) {
        if (i + AHEAD < count)
            __builtin_prefetch(table + starts[i + AHEAD]);
        int64_t at = starts[i];
        uint64_t hash = 0, nul;
        do {
            uint64_t word = bytes_from(table, size, at);
            nul = (word - EACH(1)) & ~word & EACH(0x80); // its lowest bit is the highest of the first NUL
            if (nul)
                word &= (nul & -nul) - 1;
            hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 32;
            at += WORD;
        } while (!nul);
        room -= at - starts[i];
        if (room < 0)
            return 0;
        hashes[i] = (uint32_t)hash;
    }
    return 1;
}

EXPORT int64_t copy_names(const uint8_t *table, int64_t size, const int64_t *starts, int64_t count, int64_t room,
                          uint8_t *copy)
{
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t at = starts[i]; at < size && table[at]; at++) {
            if (end == room)
                return -1;
            copy[end++] = table[at];
        }
        if (end == room)
            return -1;
        copy[end++] = 0;
    }
    return end;
}
