// What both files of loops share. They stand alone: no C library, so that one build serves every Linux of a machine.
#ifndef IMGCHECK_KERNELS_H
#define IMGCHECK_KERNELS_H

#include <stdint.h>
#ifdef __SSE2__ // every x86-64
#include <emmintrin.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define EACH(byte) ((uint64_t)(byte) * 0x0101010101010101u)

// Eight bytes, of which the one that comes first in memory is the lowest.
static inline uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    __builtin_memcpy(&word, data, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

// Searches for bytes look at a block at a time. Which of its bytes `match` is told by marks, whose lowest bit set stands
// for the first one.
#ifdef __SSE2__
#define BLOCK 16
typedef __m128i Block;

static inline Block block_at(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

static inline Block match(Block block, int mask, int value)
{
    return _mm_cmpeq_epi8(_mm_and_si128(block, _mm_set1_epi8((char)mask)), _mm_set1_epi8((char)value));
}

static inline Block either(Block one, Block other)
{
    return _mm_or_si128(one, other);
}

static inline uint64_t marks_of(Block matching)
{
    return (unsigned)_mm_movemask_epi8(matching);
}

static inline int first_mark(uint64_t marks)
{
    return __builtin_ctzll(marks);
}
#else
#define BLOCK 8
typedef uint64_t Block; // whose lowest byte comes first in memory

static inline Block block_at(const uint8_t *data)
{
    return word_at(data);
}

static inline Block match(Block block, int mask, int value)
{
    uint64_t other = (block & EACH(mask)) ^ EACH(value);
    return ~(((other & EACH(0x7F)) + EACH(0x7F)) | other | EACH(0x7F));
}

static inline Block either(Block one, Block other)
{
    return one | other;
}

static inline uint64_t marks_of(Block matching)
{
    return matching;
}

static inline int first_mark(uint64_t marks)
{
    return __builtin_ctzll(marks) >> 3;
}
#endif

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

#endif
