// Loops over x86 code. x86.py says what each takes and gives, and where the formats come from; nothing is checked here.

#include "kernels.h"

enum { LONGEST = 15 };
enum { ROOM = 24 };         // bytes that may be looked at to tell the length of an instruction, whatever they are
enum { MOST_PREFIXES = 4 }; // before the VEX, EVEX, XOP or 0F byte of an instruction

// The form of an opcode: the length of what stands behind it, whether a ModRM byte does, and how many bytes lead to the
// second table, or whether that and REX are not all that has to be known. As in x86.py.
enum {
    OPERANDS = 15, MODRM = 16, PREFIX = 32, ESCAPE = 64, LONG_WAY = 3,
    NONE = 0, BYTE = 1, WORD_ = 2, FRAME = 3, FULL, ANY, NEAR, ADDRESS, FAR, BYTE_OF_TEST, FULL_OF_TEST
};
enum { FIRST, SECOND };
enum { WITHOUT_BASE = 128 }; // the bytes behind an opcode are four more where its SIB byte has no base

typedef struct {
    const uint8_t (*opcodes)[256]; // forms of those of one byte, and of those behind 0F
    uint8_t *behind; // [REX.W][form up to MODRM][ModRM]: bytes behind an opcode, where no prefix but REX stands
    int wide;        // 64-bit code, else 32-bit code
} Forms;

typedef struct {
    int operand_size; // 66
    int address_size; // 67
    int repeat;       // F2
    int rex_w;
} Prefixes;

static int form_in_map(const Forms *forms, int map, int opcode)
{
    switch (map) {
    case 1: return forms->opcodes[SECOND][opcode];
    case 3: return MODRM | BYTE;
    case 4: return forms->opcodes[FIRST][opcode] | MODRM;
    case 7: return MODRM | FULL;
    default: return MODRM | NONE;
    }
}

static int addressing(int modrm, int sib, int words)
{
    int mod = modrm >> 6, rm = modrm & 7, with_sib = mod != 3 && rm == 4 && !words;
    if (mod == 3)
        return 1;
    if (words)
        return 1 + (mod == 2 || (mod == 0 && rm == 6) ? 2 : mod);
    if (with_sib)
        rm = sib & 7;
    return 1 + with_sib + (mod == 1 ? 1 : mod == 2 || rm == 5 ? 4 : 0);
}

static int immediate(int kind, const Prefixes *prefixes, int wide)
{
    int small = prefixes->operand_size && !prefixes->rex_w;
    switch (kind) {
    case FULL: return small ? 2 : 4;
    case ANY: return prefixes->rex_w ? 8 : small ? 2 : 4;
    case NEAR: return wide || !prefixes->operand_size ? 4 : 2;
    case ADDRESS: return wide ? (prefixes->address_size ? 4 : 8) : prefixes->address_size ? 2 : 4;
    case FAR: return prefixes->operand_size ? 4 : 6;
    default: return kind;
    }
}

static int behind(int form, int modrm, int sib, const Prefixes *prefixes, int wide)
{
    int kind = form & OPERANDS;
    if (!(form & MODRM))
        return immediate(kind, prefixes, wide);
    if (kind >= BYTE_OF_TEST)
        kind = modrm & 0x30 ? NONE : kind == BYTE_OF_TEST ? BYTE : FULL;
    return addressing(modrm, sib, prefixes->address_size && !wide) + immediate(kind, prefixes, wide);
}

static int behind_key(int rex_w, int form, int modrm)
{
    return (rex_w * 2 * MODRM + (form & (MODRM | OPERANDS))) * 256 + modrm;
}

EXPORT void fill_behind(const Forms *forms)
{
    for (int key = 0; key < behind_key(2, 0, 0); key++) {
        Prefixes prefixes = {0, 0, 0, key >= behind_key(1, 0, 0)};
        int form = key >> 8, modrm = key & 255, bytes = behind(form, modrm, 0, &prefixes, forms->wide);
        int without_base = behind(form, modrm, 5, &prefixes, forms->wide) > bytes;
        forms->behind[key] = (uint8_t)(bytes | without_base * WITHOUT_BASE);
    }
}

static int length_with_prefixes(const uint8_t *code, const Forms *forms)
{
    Prefixes prefixes = {0, 0, 0, 0};
    int opcode, form, here = 0;
    for (;;) {
        opcode = code[here++];
        form = forms->opcodes[FIRST][opcode];
        if (!(form & PREFIX))
            break;
        if (here == LONGEST)
            return LONGEST;
        prefixes.rex_w = forms->wide && (opcode & 0xF8) == 0x48;
        prefixes.operand_size |= opcode == 0x66;
        prefixes.address_size |= opcode == 0x67;
        prefixes.repeat |= opcode == 0xF2;
    }
    int following = code[here], vector = forms->wide || following >= 0xC0;
    if (opcode == 0x0F) {
        here++;
        form = forms->opcodes[SECOND][following];
        if (following == 0x38 || following == 0x3A) {
            here++;
            form = form_in_map(forms, following == 0x38 ? 2 : 3, 0);
        } else if (following == 0x78 && (prefixes.operand_size || prefixes.repeat)) {
            form = MODRM | WORD_; // EXTRQ and INSERTQ
        }
    } else if (opcode == 0xD5 && forms->wide) { // REX2
        prefixes.rex_w = (following & 8) != 0;
        here += 2;
        form = following & 0x80 ? forms->opcodes[SECOND][code[here - 1]] : forms->opcodes[FIRST][code[here - 1]];
    } else if (opcode == 0xC5 && vector) {
        here += 2;
        form = forms->opcodes[SECOND][code[here - 1]];
    } else if ((opcode == 0xC4 || opcode == 0x62) && vector) {
        int evex = opcode == 0x62;
        here += evex ? 4 : 3;
        prefixes.operand_size = 0;
        form = form_in_map(forms, following & (evex ? 7 : 31), code[here - 1]);
    } else if (opcode == 0x8F && (following & 31) >= 8) { // XOP
        here += 3;
        form = MODRM | ((following & 31) == 8 ? BYTE : (following & 31) == 10 ? FULL : NONE);
    }
    here += behind(form, code[here], code[here + 1], &prefixes, forms->wide);
    return here < LONGEST ? here : LONGEST;
}

// Of an instruction with ROOM bytes to look at. Most have no prefix but REX, and an opcode of one byte or behind 0F or
// C5: of those it is told without branches, as which of them comes next cannot be foreseen.
static ALWAYS_INLINE int length_in_room(const uint8_t *code, const Forms *forms)
{
    uint64_t word = word_at(code);
    int rex = forms->wide & ((word & 0xF0) == 0x40), rex_w = rex & (int)(word >> 3);
    word >>= 8 * rex;
    int escape = forms->opcodes[FIRST][word & 255] / ESCAPE;
    word >>= 8 * escape;
    int form = forms->opcodes[escape > 0][word & 255];
    if ((escape == LONG_WAY) | (form / ESCAPE == LONG_WAY))
        return length_with_prefixes(code, forms);
    int bytes = forms->behind[behind_key(rex_w, form, word >> 8 & 255)], no_base = (word >> 16 & 7) == 5;
    return rex + escape + 1 + (bytes & ~WITHOUT_BASE) + 4 * (no_base & bytes / WITHOUT_BASE);
}

static int length_at_end(const uint8_t *code, int64_t left, const Forms *forms)
{
    uint8_t last[ROOM] = {0};
    for (int64_t i = 0; i < left; i++)
        last[i] = code[i];
    int found = length_in_room(last, forms);
    return found < left ? found : (int)left;
}

static inline int length(const uint8_t *code, int64_t at, int64_t size, const Forms *forms)
{
    return size - at < ROOM ? length_at_end(code + at, size - at, forms) : length_in_room(code + at, forms);
}

EXPORT int64_t lengths(const uint8_t *code, int64_t size, const Forms *forms, uint8_t *found)
{
    int64_t count = 0;
    for (int64_t at = 0; at < size; at += found[count++])
        found[count] = (uint8_t)length(code, at, size, forms);
    return count;
}

// A bit for each byte from `origin` on: whether an instruction begins there.
typedef struct {
    uint64_t *bits;
    int64_t origin, count;
} Marks;

static inline void mark(const Marks *marks, int64_t at)
{
    uint64_t bit = (uint64_t)(at - marks->origin);
    if (bit < (uint64_t)marks->count)
        marks->bits[bit / 64] |= (uint64_t)1 << bit % 64;
}

static inline int is_marked(const Marks *marks, int64_t at)
{
    uint64_t bit = (uint64_t)(at - marks->origin);
    return bit < (uint64_t)marks->count && marks->bits[bit / 64] >> bit % 64 & 1;
}

enum { LANES = 4 }; // stretches of code that are read side by side

// Marks the instructions from each of `from` on that begin before what of `to` goes with it. Where one begins is told
// by the one before, so that a processor that reads a single stretch mostly waits.
static void read_stretches(const uint8_t *code, int64_t size, const Forms *forms, const int64_t *from,
                           const int64_t *to, int64_t count, Marks marks)
{
    int64_t at[LANES], end[LANES], next = 0;
    int lanes = 0;
    for (; lanes < LANES && next < count; lanes++, next++) {
        at[lanes] = from[next];
        end[lanes] = to[next];
    }
    while (lanes) {
        for (int i = 0; i < lanes; i++) {
            if (at[i] < end[i]) {
                mark(&marks, at[i]);
                at[i] += length(code, at[i], size, forms);
            } else if (next < count) {
                at[i] = from[next];
                end[i] = to[next++];
            } else {
                lanes--;
                at[i] = at[lanes];
                end[i] = end[lanes];
            }
        }
    }
}

// `place` is the function that was read last, and the address of the instruction where that stopped: it holds the last
// byte that was wanted, and may hold the next one, too.
EXPORT void beginnings(const uint8_t *code, int64_t size, int64_t base, const Forms *forms, const int64_t *starts,
                       const int64_t *ends, int64_t functions, const int64_t *wanted, int64_t count, int64_t *place,
                       int64_t *from, int64_t *to, const Marks *marks, int32_t *holders)
{
    int64_t near = -1, reading = -1, stretches = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = wanted[i] - base;
        near = last_before(starts, functions, wanted[i], near);
        int held = near >= 0 && starts[near] >= base && wanted[i] < ends[near] && at < size;
        holders[i] = held ? (int32_t)near : -1;
        if (!held)
            continue;
        if (near != reading) {
            int goes_on = near == place[0] && base <= place[1] && place[1] <= wanted[i];
            from[stretches] = (goes_on ? place[1] : starts[near]) - base;
            to[stretches++] = 0;
            reading = near;
        }
        if (to[stretches - 1] <= at)
            to[stretches - 1] = at + 1;
    }
    read_stretches(code, size, forms, from, to, stretches, *marks);
    if (!stretches)
        return;
    int64_t last = to[stretches - 1] - 1;
    while (last > from[stretches - 1] && !is_marked(marks, last))
        last--;
    place[0] = reading;
    place[1] = base + last;
}

EXPORT int64_t branches(const uint8_t *data, int64_t size, int64_t address, int64_t lowest, int64_t highest,
                        int64_t *sites, int64_t *targets, uint8_t *opcodes)
{
    int64_t count = 0;
    for (int64_t base = 0; base < size; base += BLOCK) {
        Block block = block_at(data + base);
        uint64_t marks = marks_of(either(match(block, 0xFE, 0xE8), match(block, 0xFF, 0x0F)));
        for (; marks; marks &= marks - 1) {
            int64_t at = base + first_mark(marks);
            if (at >= size)
                break;
            int conditional = data[at] == 0x0F;
            if (conditional && (data[at + 1] & 0xF0) != 0x80)
                continue;
            int32_t distance = distance_at(data + at + 1 + conditional);
            int64_t target = address + at + 5 + conditional + distance;
            int next = !distance && data[at] == 0xE8;
            if (next || target < lowest || target >= highest)
                continue;
            sites[count] = address + at;
            opcodes[count] = data[at];
            targets[count++] = target;
        }
    }
    return count;
}

EXPORT int64_t operands(const uint8_t *data, int64_t size, int64_t address, int32_t wide, int64_t lowest,
                        int64_t highest, int64_t *sites, int64_t *targets)
{
    int64_t count = 0;
    for (int64_t base = 0; base < size; base += BLOCK) {
        uint64_t marks = marks_of(match(block_at(data + base), 0xC7, 0x05));
        for (; marks; marks &= marks - 1) {
            int64_t at = base + first_mark(marks);
            if (at >= size)
                break;
            int32_t distance = distance_at(data + at + 1);
            int64_t target = wide ? address + at + 5 + distance : (int64_t)(uint32_t)distance;
            if (target < lowest || target >= highest)
                continue;
            sites[count] = address + at;
            targets[count++] = target;
        }
    }
    return count;
}

enum { UNSURE = 255 }; // a depth: what stands before may be a prefix or not

// What may begin at a byte, as `screen` gives it: a column each.
typedef struct {
    int64_t *address;
    uint8_t *set, *doubtful, *depth;
    int64_t count;
} Found;

typedef struct {
    const uint8_t *vector, *ambiguous_vector; // [VEX or EVEX or XOP][map & 7][prefix][opcode][W][L]
    const uint8_t *legacy, *ambiguous;        // [map][prefix][opcode][reg]
    const uint8_t *escaped;                   // [opcode behind 0F]: whether any instruction of interest has it
    int avx, apx, avx10;
    int wide;
} Tables;

typedef struct {
    const uint8_t *data;
    int64_t size;
} Code;

enum { VEX, EVEX, XOP };

// The byte at `at`, or the first or last one where none is there.
static inline int byte_at(const Code *code, int64_t at)
{
    return code->data[at < 0 ? 0 : at < code->size ? at : code->size - 1];
}

static int vector_key(int encoding, int map, int prefix, int opcode, int w, int l)
{
    return ((((encoding * 8 + map) * 4 + prefix) * 256 + opcode) * 2 + w) * 4 + l;
}

static void enter(Found *found, int64_t address, int set, int doubtful, int depth)
{
    if (!set)
        return;
    found->address[found->count] = address;
    found->set[found->count] = (uint8_t)set;
    found->doubtful[found->count] = (uint8_t)doubtful;
    found->depth[found->count++] = (uint8_t)depth;
}

static void enter_vector(Found *found, const Tables *tables, int64_t at, int set, int key)
{
    enter(found, at, set, tables->ambiguous_vector[key], 0);
}

static void screen_vex2(Found *found, const Tables *tables, const Code *code, int64_t at)
{
    int head = byte_at(code, at + 1);
    int key = vector_key(VEX, 1, head & 3, byte_at(code, at + 2), 0, head >> 2 & 1);
    enter_vector(found, tables, at, tables->vector[key], key);
}

static void screen_vex3(Found *found, const Tables *tables, const Code *code, int64_t at)
{
    int map = byte_at(code, at + 1) & 31, head = byte_at(code, at + 2), opcode = byte_at(code, at + 3);
    if (map >= 8)
        return;
    int key = vector_key(VEX, map, head & 3, opcode, head >> 7, head >> 2 & 1);
    int set = tables->vector[key];
    // VBROADCASTSS and VBROADCASTSD from memory are AVX, those from registers AVX2.
    if (set && map == 2 && (opcode == 0x18 || opcode == 0x19) && byte_at(code, at + 4) < 0xC0)
        set = tables->avx;
    enter_vector(found, tables, at, set, key);
}

static void screen_evex(Found *found, const Tables *tables, const Code *code, int64_t at)
{
    int first = byte_at(code, at + 1), second = byte_at(code, at + 2), third = byte_at(code, at + 3);
    int map = first & 7, reserved = first & 8;
    if (!(second & 4) || map == 0 || map == 7)
        return;
    // With register operands the broadcast bit means rounding, the length field its mode, and the length is 512.
    int rounding = third & 0x10 && byte_at(code, at + 5) >= 0xC0;
    int l = rounding ? 2 : third >> 5 & 3;
    int key = vector_key(EVEX, map, second & 3, byte_at(code, at + 4), second >> 7, l);
    int set = reserved ? 0 : tables->vector[key];
    // Map 4 is APX whatever else it says; other unknown opcodes of a well-formed prefix are newer than the decoder.
    if (map == 4)
        set = tables->apx;
    else if (!set && !reserved && l < 3)
        set = tables->avx10;
    enter_vector(found, tables, at, set, key);
}

static void screen_xop(Found *found, const Tables *tables, const Code *code, int64_t at)
{
    int map = byte_at(code, at + 1) & 31, head = byte_at(code, at + 2);
    if (map < 8 || map > 10)
        return;
    int key = vector_key(XOP, map & 7, head & 3, byte_at(code, at + 3), head >> 7, head >> 2 & 1);
    enter_vector(found, tables, at, tables->vector[key], key);
}

// The number of a mandatory prefix (66, F3, F2: 1 to 3) at `at`; 0 where none stands there.
static int prefix_at(const Code *code, int64_t at)
{
    int byte = at < 0 ? 0 : code->data[at];
    return byte == 0x66 ? 1 : byte == 0xF3 ? 2 : byte == 0xF2 ? 3 : 0;
}

// An opcode behind 0F, and what the ModRM byte adds to it.
typedef struct {
    int map, opcode, reg;
} Legacy;

static Legacy legacy_at(const Code *code, int64_t at)
{
    int second = byte_at(code, at + 1), map = second == 0x38 ? 2 : second == 0x3A ? 3 : 1;
    Legacy found = {map, map > 1 ? byte_at(code, at + 2) : second, byte_at(code, at + (map > 1 ? 3 : 2)) >> 3 & 7};
    return found;
}

static int legacy_key(Legacy read, int prefix)
{
    return ((read.map * 4 + prefix) * 256 + read.opcode) * 8 + read.reg;
}

static void screen_legacy(Found *found, const Tables *tables, const Code *code, int64_t at)
{
    if (!tables->escaped[byte_at(code, at + 1)])
        return;
    Legacy read = legacy_at(code, at);
    int rex = tables->wide && at > 0 && (code->data[at - 1] & 0xF0) == 0x40;
    int near = prefix_at(code, at - 1 - rex), far = prefix_at(code, at - 2 - rex);
    // F2 and F3 decide over 66, in whichever order they stand.
    int behind = near == 1 && far > 1;
    // A byte before the opcode that looks like a prefix may end the instruction before it, or may make another
    // instruction of it, one that needs nothing: what the likeliest reading does not explain, the next one may.
    int prefixes[] = {behind ? far : near, near, 0};
    int depths[] = {near ? 1 + rex + behind : 0, near ? 1 + rex : 0, 0};
    int reading = 0;
    while (reading < 2 && !tables->legacy[legacy_key(read, prefixes[reading])])
        reading++;
    int key = legacy_key(read, prefixes[reading]);
    int unsure = reading > 0 && prefixes[0] > 0;
    enter(found, at, tables->legacy[key], tables->ambiguous[key], unsure ? UNSURE : depths[reading]);
}

// Of the bytes from `begin` up to `at`, all of them prefixes, the mandatory one: the last F2 or F3, or else 66.
static int prefix_among(const Code *code, int64_t begin, int64_t at)
{
    int found = 0;
    for (int64_t i = begin; i < at; i++) {
        int prefix = prefix_at(code, i);
        if (prefix > 1 || (prefix && !found))
            found = prefix;
    }
    return found;
}

// Where the instruction begins that has its VEX, EVEX, XOP or 0F byte at `at`, in a function that begins at `first`; -1
// where none has.
static int64_t beginning(const Code *code, const Forms *forms, const Marks *marks, int64_t first, int64_t at)
{
    int64_t begin = at;
    while (!is_marked(marks, begin)) {
        begin--;
        if (begin < first || at - begin > MOST_PREFIXES || !(forms->opcodes[FIRST][code->data[begin]] & PREFIX))
            return -1;
    }
    return begin;
}

EXPORT int64_t confirm(const uint8_t *data, int64_t size, int64_t base, const Forms *forms, const int64_t *starts,
                       const int64_t *addresses, const uint8_t *sets, const uint8_t *doubtful, const uint8_t *depths,
                       int64_t count, const Marks *marks, const uint8_t *legacy, const uint8_t *ambiguous,
                       const uint8_t *common, int32_t *last, int32_t *holders, int64_t *begins, uint8_t *confirmed,
                       uint8_t *unsure)
{
    Code code = {data, size};
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = addresses[i] - base;
        int32_t function = holders[i];
        if (function < 0)
            continue;
        int64_t begin = beginning(&code, forms, marks, starts[function] - base, at);
        if (begin < 0)
            continue;
        int set = sets[i], open = doubtful[i];
        if (at - begin < depths[i]) { // what was taken for a prefix belongs to the instruction before
            int key = legacy_key(legacy_at(&code, at), prefix_among(&code, begin, at));
            set = legacy[key];
            open |= ambiguous[key];
        }
        // Common sets tell nothing but which functions hold one of them.
        if (!open && (!set || (common[set] && last[set] == function)))
            continue;
        if (!open)
            last[set] = function;
        begins[found] = base + begin;
        confirmed[found] = (uint8_t)set;
        unsure[found] = (uint8_t)open;
        holders[found++] = function;
    }
    return found;
}

static void screen_at(Found *found, const Tables *tables, const Code *code, int64_t at)
{
    int byte = code->data[at];
    if (byte == 0x0F)
        screen_legacy(found, tables, code, at);
    else if (byte == 0x8F)
        screen_xop(found, tables, code, at);
    else if (!tables->wide && byte_at(code, at + 1) < 0xC0)
        return; // LDS, LES and BOUND, whose operand is in memory
    else if (byte == 0xC5)
        screen_vex2(found, tables, code, at);
    else if (byte == 0xC4)
        screen_vex3(found, tables, code, at);
    else if (byte == 0x62)
        screen_evex(found, tables, code, at);
}

static inline uint64_t prefixes_in(Block block)
{
    return marks_of(either(either(match(block, 0xFE, 0xC4), match(block, 0xFF, 0x62)),
                           either(match(block, 0xFF, 0x8F), match(block, 0xFF, 0x0F))));
}

EXPORT int64_t screen(const uint8_t *data, int64_t size, int64_t from, int64_t to, const uint8_t *vector,
                      const uint8_t *ambiguous_vector, const uint8_t *legacy, const uint8_t *ambiguous,
                      const uint8_t *escaped, int32_t avx, int32_t apx, int32_t avx10, int32_t wide,
                      int64_t *address, uint8_t *set, uint8_t *doubtful, uint8_t *depth)
{
    Code code = {data, size};
    Tables tables = {vector, ambiguous_vector, legacy, ambiguous, escaped, avx, apx, avx10, wide};
    Found found = {address, set, doubtful, depth, 0};
    int64_t at = from;
    for (; at + BLOCK <= to; at += BLOCK) {
        for (uint64_t marks = prefixes_in(block_at(data + at)); marks; marks &= marks - 1)
            screen_at(&found, &tables, &code, at + first_mark(marks));
    }
    for (; at < to; at++)
        screen_at(&found, &tables, &code, at);
    return found.count;
}

static int is_end(int last, int second, int fifth, int sixth)
{
    return last == 0xC3 || last == 0xCC || last == 0xF4 || last == 0x0B || // RET, INT3, HLT, UD2
           second == 0xEB || fifth == 0xE8 || fifth == 0xE9 ||             // JMP, CALL of what does not return
           (sixth == 0xFF && (fifth == 0x15 || fifth == 0x25));            // the same through memory
}

// Whether an instruction that ends a function ends before `at`, where bytes from `start` on are looked at.
static int ends_before(const uint8_t *data, int64_t start, int64_t at)
{
    int64_t left = at - start;
    return is_end(left >= 1 ? data[at - 1] : 0, left >= 2 ? data[at - 2] : 0, left >= 5 ? data[at - 5] : 0,
                  left >= 6 ? data[at - 6] : 0);
}

// What assemblers fill gaps of up to seven bytes with: NOPs, of which the one of n bytes begins at n - 1.
static const uint8_t NOPS[][7] = {
    {0x90}, {0x66, 0x90}, {0x0F, 0x1F, 0x00}, {0x0F, 0x1F, 0x40, 0x00}, {0x0F, 0x1F, 0x44, 0x00, 0x00},
    {0x66, 0x0F, 0x1F, 0x44, 0x00, 0x00}, {0x0F, 0x1F, 0x80, 0x00, 0x00, 0x00, 0x00},
};

static int is_nop(const uint8_t *code, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        if (code[i] != NOPS[size - 1][i])
            return 0;
    }
    return 1;
}

static int ends_before_nop(const uint8_t *data, int64_t start, int64_t at)
{
    for (int64_t size = 1; size <= 7 && size <= at - start; size++) {
        if (is_nop(data + at - size, size) && ends_before(data, start, at - size))
            return 1;
    }
    return 0;
}

#define BEHIND_END(type, suffix)                                                                                      \
    EXPORT void behind_end_##suffix(const Ranges *ranges, const type *addresses, int64_t size, int32_t padded,        \
                                    uint8_t *found)                                                                   \
    {                                                                                                                 \
        int64_t near = -1;                                                                                            \
        for (int64_t i = 0; i < size; i++) {                                                                          \
            int64_t last = (int64_t)addresses[i] - 1;                                                                 \
            near = last_before(ranges->starts, ranges->count, last, near);                                            \
            found[i] = 0;                                                                                             \
            if (near < 0 || last >= ranges->ends[near])                                                               \
                continue;                                                                                             \
            int64_t start = ranges->offsets[near], at = start + (last - ranges->starts[near]) + 1;                    \
            found[i] = ends_before(ranges->data, start, at) || (padded && ends_before_nop(ranges->data, start, at));  \
        }                                                                                                             \
    }

BEHIND_END(int32_t, 32)
BEHIND_END(int64_t, 64)
