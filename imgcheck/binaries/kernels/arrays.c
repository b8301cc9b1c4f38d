// Loops over sorted columns and call graphs. arrays.py says what each takes and gives; nothing is checked here.

#include "kernels.h"

// Sorted numbers, and for each stretch of 1 << shift from the first of them on the index of the first that is not below
// it; one more, `count`, stands behind these.
typedef struct {
    const int64_t *sorted;
    int64_t count, shift;
    const int32_t *stretches;
} Stretches;

static inline int64_t first_not_below(const Stretches *in, int64_t value)
{
    if (!in->count || value <= in->sorted[0])
        return 0;
    if (value > in->sorted[in->count - 1])
        return in->count;
    uint64_t stretch = ((uint64_t)value - (uint64_t)in->sorted[0]) >> in->shift;
    int64_t low = in->stretches[stretch], high = in->stretches[stretch + 1];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (in->sorted[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#define COLUMN_LOOPS(type, suffix)                                                                                    \
    EXPORT void holding_##suffix(const int64_t *starts, const int64_t *ends, int64_t count, const type *addresses,    \
                                 int64_t size, int32_t *found)                                                        \
    {                                                                                                                 \
        int64_t near = -1;                                                                                            \
        for (int64_t i = 0; i < size; i++) {                                                                          \
            near = last_before(starts, count, addresses[i], near);                                                    \
            found[i] = near >= 0 && addresses[i] < ends[near] ? (int32_t)near : -1;                                   \
        }                                                                                                             \
    }                                                                                                                 \
                                                                                                                      \
    EXPORT void not_below_##suffix(const Stretches *in, int64_t reach, const type *values, int64_t size,              \
                                   int32_t *found)                                                                    \
    {                                                                                                                 \
        for (int64_t i = 0; i < size; i++) {                                                                          \
            int64_t value = values[i], next = first_not_below(in, value);                                             \
            int close = next < in->count && (uint64_t)in->sorted[next] - (uint64_t)value < (uint64_t)reach;           \
            found[i] = close ? (int32_t)next : -1;                                                                    \
        }                                                                                                             \
    }                                                                                                                 \
                                                                                                                      \
    EXPORT void bytes_at_##suffix(const Ranges *ranges, const type *addresses, int64_t size, int64_t distance,        \
                                  uint8_t *values)                                                                    \
    {                                                                                                                 \
        const int64_t *starts = ranges->starts;                                                                       \
        int64_t near = -1;                                                                                            \
        for (int64_t i = 0; i < size; i++) {                                                                          \
            int64_t address = (int64_t)addresses[i] + distance;                                                       \
            near = last_before(starts, ranges->count, address, near);                                                 \
            int held = near >= 0 && address < ranges->ends[near];                                                     \
            values[i] = held ? ranges->data[ranges->offsets[near] + (address - starts[near])] : 0;                    \
        }                                                                                                             \
    }

COLUMN_LOOPS(int32_t, 32)
COLUMN_LOOPS(int64_t, 64)

EXPORT int64_t find_bytes(const uint8_t *data, int64_t size, uint8_t mask, uint8_t value, int64_t *found)
{
    int64_t count = 0, at = 0;
    for (; at + BLOCK <= size; at += BLOCK) {
        uint64_t marks = marks_of(match(block_at(data + at), mask, value));
        for (; marks; marks &= marks - 1)
            found[count++] = at + first_mark(marks);
    }
    for (; at < size; at++) {
        if ((data[at] & mask) == value)
            found[count++] = at;
    }
    return count;
}

static inline unsigned is_pair(const uint8_t *pairs, const uint8_t *data)
{
    unsigned pair = data[0] | (unsigned)data[1] << 8;
    return pairs[pair >> 3] >> (pair & 7) & 1;
}

// Of every `step`th place from `at` on the next one where a pair stands; four are looked at together, as it is at few.
static int64_t next_pair(const uint8_t *pairs, const uint8_t *data, int64_t size, int64_t step, int64_t at)
{
    while (at + 3 * step + 1 < size && !(is_pair(pairs, data + at) | is_pair(pairs, data + at + step) |
                                         is_pair(pairs, data + at + 2 * step) | is_pair(pairs, data + at + 3 * step)))
        at += 4 * step;
    while (at + 1 < size && !is_pair(pairs, data + at))
        at += step;
    return at;
}

EXPORT int64_t find_texts(const uint8_t *data, int64_t size, int64_t step, const uint8_t *texts, const int64_t *begins,
                          const int32_t *by_byte, const uint8_t *pairs, const uint8_t *leading, int32_t *left,
                          int64_t *positions, int32_t *numbers)
{
    int64_t count = 0;
    // Of `step` and one more bytes a pair stands at a multiple of `step`, wherever they begin.
    for (int64_t at = next_pair(pairs, data, size, step, 0); at + 1 < size;
         at = next_pair(pairs, data, size, step, at + step)) {
        for (int64_t i = at < step ? 0 : at - step + 1; i <= at; i++) {
            if (!is_pair(leading, data + i))
                continue;
            for (int32_t k = by_byte[data[i]]; k < by_byte[data[i] + 1]; k++) {
                const uint8_t *text = texts + begins[k];
                int64_t length = begins[k + 1] - begins[k], same = 1;
                if (!left[k] || length > size - i)
                    continue;
                while (same < length && text[same] == data[i + same])
                    same++;
                if (same < length)
                    continue;
                left[k]--;
                positions[count] = i;
                numbers[count++] = k;
            }
        }
    }
    return count;
}

EXPORT int64_t first_of_kinds(const int32_t *owner, const uint16_t *kind, int64_t size, int32_t *last, int32_t *found)
{
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) {
        if (last[kind[i]] == owner[i])
            continue;
        last[kind[i]] = owner[i];
        found[count++] = (int32_t)i;
    }
    return count;
}

EXPORT int64_t marked(const int32_t *numbers, int64_t size, const uint8_t *marks, int64_t count, int64_t *found)
{
    int64_t n = 0;
    for (int64_t i = 0; i < size; i++) {
        found[n] = i;
        n += numbers[i] >= 0 && numbers[i] < count && marks[numbers[i]];
    }
    return n;
}

EXPORT void reach(const int64_t *first, const int32_t *target, const uint8_t *over, const uint8_t *closed,
                  uint8_t *seen, int32_t *parent, int32_t *queue, int64_t queued)
{
    for (int64_t head = 0; head < queued; head++) {
        int32_t source = queue[head];
        if (closed && closed[source])
            continue;
        for (int64_t edge = first[source]; edge < first[source + 1]; edge++) {
            int32_t node = target[edge];
            if ((over && !over[edge]) || seen[node])
                continue;
            seen[node] = 1;
            parent[node] = source;
            queue[queued++] = node;
        }
    }
}

EXPORT void sorted_by(const int32_t *keys, int64_t size, int64_t *place, int32_t *order)
{
    for (int64_t i = 0; i < size; i++)
        order[place[keys[i]]++] = (int32_t)i;
}
