// What both files of loops share. They stand alone: no C library, so that one build serves every Linux of a machine.
#ifndef IMGCHECK_KERNELS_H
#define IMGCHECK_KERNELS_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

// Searches for bytes look at eight at a time, as one number whose lowest byte comes first in memory.
#define WORD 8

static inline uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    __builtin_memcpy(&word, data, WORD);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline int32_t distance_at(const uint8_t *data)
{
    return (int32_t)((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
}

// Sorted ranges of addresses, the bytes of each of which lie somewhere in `data`.
typedef struct {
    const uint8_t *data;
    const int64_t *starts, *ends, *offsets;
    int64_t count;
} Ranges;

// Index of the last of the sorted `starts` that is not above `address`, or -1. Neighbours in a column mostly lie close
// to each other, so it is sought from `near`, the answer for the one before, in steps that double.
static inline int64_t last_before(const int64_t *starts, int64_t count, int64_t address, int64_t near)
{
    int64_t low = near, high = near + 1, step = 1;
    if (near >= 0 && starts[near] > address) {
        while (low >= 0 && starts[low] > address) {
            high = low;
            low -= step;
            step *= 2;
        }
        low = low < -1 ? -1 : low;
    } else {
        while (high < count && starts[high] <= address) {
            low = high;
            high += step;
            step *= 2;
        }
        high = high > count ? count : high;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (starts[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#define EACH(byte) ((uint64_t)(byte) * 0x0101010101010101u)

// The highest bit of each byte of `word` that is `value` under `mask`; both stand there eight times.
static inline uint64_t matches(uint64_t word, uint64_t mask, uint64_t value)
{
    uint64_t other = (word & mask) ^ value;
    return ~(((other & EACH(0x7F)) + EACH(0x7F)) | other | EACH(0x7F));
}

// The number of the first byte that `matches` marks.
static inline int first_match(uint64_t marks)
{
    return __builtin_ctzll(marks) >> 3;
}

#endif
