"""Programs that find out what the CPU has without asking it: they catch SIGILL, or read names of features in a file.

What their tests tell is not followed. So what stands behind them alone is unknown, and what does not is required.
"""

from pathlib import Path

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c, need, run

KERNELS = """
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int x[64];
static void fast(void) { __asm__ volatile("vmovdqu (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovdqu %%ymm1, (%0);"
                                          "vzeroupper" : : "r"(x) : "memory", "xmm1"); }
static void plain(void) { for (int i = 0; i < 8; i++) x[i] += x[i]; }
"""
CATCHING = """
static sigjmp_buf back;
static void jump(int n) { siglongjmp(back, n); }
static void say(int n) { static const char words[] = "illegal instruction"; puts(words); _Exit(n); }
__attribute__((noinline)) static void catch(void (*how)(int)) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = how;
    sigaction(SIGILL, &action, 0);
}
"""
SHAPES = {
    "in one function": """
static volatile int has;
__attribute__((noinline)) static void find(void) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = jump;
    sigaction(SIGILL, &action, &before);
    if (!sigsetjmp(back, 1)) { TRY; has = 1; }
    sigaction(SIGILL, &before, 0);
}
int main(void) { find(); if (has) fast(); else plain(); END }
""",
    "by a function of its own": """
__attribute__((noinline)) static int works(void) { if (sigsetjmp(back, 1)) return 0; TRY; return 1; }
__attribute__((noinline)) static int find(void) { catch(jump); int n = works(); signal(SIGILL, SIG_DFL); return n; }
int main(void) { if (find()) fast(); else plain(); END }
""",
    "of what is handed over": """
static void try_it(void) { TRY; }
__attribute__((noinline)) static int works(void (*f)(void)) {
    volatile int fine = 0;
    signal(SIGILL, jump);
    if (sigsetjmp(back, 1) == 0) { f(); fine = 1; }
    signal(SIGILL, SIG_DFL);
    return fine;
}
int main(void) { (works(try_it) ? fast : plain)(); END }
""",
    "of a list": """
static void try_it(void) { TRY; }
static const struct { unsigned bit; void (*attempt)(void); } attempts[] = {{1, try_it}, {2, plain}};
__attribute__((noinline)) static unsigned find(void) {
    volatile unsigned has = 0;
    signal(SIGILL, jump);
    for (volatile int i = 0; i < 2; i++) if (!sigsetjmp(back, 1)) { attempts[i].attempt(); has |= attempts[i].bit; }
    signal(SIGILL, SIG_DFL);
    return has;
}
struct chosen { void (*run)(void); void (*again)(void); };
__attribute__((noinline)) static void choose(struct chosen *of, unsigned has)
{ of->run = of->again = plain; if (has & 1) of->run = fast; if (has & 2) of->again = plain; }
int main(void) { struct chosen of; choose(&of, find()); of.run(); of.again(); END }
""",
}
TRY = '__asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0; vzeroupper" : : : "xmm0")'
END = 'printf("%d\\n", x[3]); return 0;'
STYLES = [("-O0",), ("-O2",), ("-O2", "-no-pie", "-fno-pie"), ("-O3", "-s"), ("-O2", "-static", "-s")]


def caught(source: str, *flags: str) -> Path:
    return compile_c(KERNELS + CATCHING + source.replace("TRY", TRY).replace("END", END), *flags)


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_instruction_that_is_tried_is_not_said_to_be_required(shape: str, flags: tuple[str, ...]) -> None:
    path = caught(SHAPES[shape], *flags)
    assert observed(path, "qemu-x86_64", "Nehalem") == "runs"
    assert predicted(analyse(path), MODELS["Nehalem"]) == "unknown"
    assert predicted(analyse(path), MODELS["Haswell"]) == "runs"


DYING = {
    "used anyway": SHAPES["in one function"].replace("if (has) fast(); else plain();", "fast();"),
    "a handler that only says so": "int main(void) { catch(say); if (!sigsetjmp(back, 1)) fast(); else jump(1); END }",
    "another signal is caught": "int main(void) { signal(SIGINT, jump); if (!sigsetjmp(back, 1)) fast(); END }",
}


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("shape", DYING)
def test_a_handler_for_sigill_alone_excuses_nothing(shape: str, flags: tuple[str, ...]) -> None:
    path = caught(DYING[shape], *flags)
    if shape != "a handler that only says so":
        assert observed(path, "qemu-x86_64", "Nehalem") == "dies"
    assert predicted(analyse(path), MODELS["Nehalem"]) == "dies"


READING = """
static char text[1 << 16];
__attribute__((noinline)) static void read_all(void) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    if (f) { text[fread(text, 1, sizeof text - 1, f)] = 0; fclose(f); }
}
"""
WORDS = {
    "a word that is searched": 'if (strstr(text, " avx2 ")) fast(); else plain();',
    "words that are compared": 'for (char *w = strtok(text, " \\n"); w; w = strtok(0, " \\n"))'
    ' if (!strcmp(w, "avx2")) { fast(); break; }',
}
KEPT = (
    "__attribute__((noinline)) static int has(const char *w) { return strstr(text, w) != 0; } static int wide;"
    '__attribute__((constructor)) static void find(void) { read_all(); wide = has("avx2"); }'
    "int main(void) { if (wide) fast(); else plain(); END }"
)


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
@pytest.mark.parametrize("shape", [*WORDS, "an answer that is kept"])
def test_what_is_behind_words_of_a_file_is_not_said_to_be_required(shape: str, flags: tuple[str, ...]) -> None:
    main = f"int main(void) {{ read_all(); {WORDS[shape]} END }}" if shape in WORDS else KEPT
    found = analyse(compile_c(KERNELS + READING + main.replace("END", END), *flags))
    assert predicted(found, MODELS["Nehalem"]) == "unknown"
    assert predicted(found, MODELS["Haswell"]) == "runs"


BY_LINES = """
static char line[8192];
static void wide(void) {
    __asm__ volatile("vmovdqu (%0), %%xmm1; vmovdqu %%xmm1, 16(%0)" : : "r"(x) : "memory", "xmm1");
}
int main(void) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    int found = 0;
    while (f && fgets(line, sizeof line, f)) if (!strncmp(line, "flags", 5) && strstr(line, " avx2")) found = 1;
    if (found) wide(); else plain();
    END
}
"""


@pytest.mark.parametrize("flags", [style for style in STYLES if "-O0" not in style], ids=" ".join)
def test_a_word_that_is_found_in_one_of_many_lines_may_be_for_more_than_what_is_used(flags: tuple[str, ...]) -> None:
    path = compile_c(KERNELS + BY_LINES.replace("END", END), *flags)
    (use,) = (use for use in analyse(path).uses if use.feature == "avx")
    assert use.answer == "unknown", use.reason


@pytest.mark.parametrize("flags", STYLES, ids=" ".join)
def test_what_such_words_do_not_decide_is_required(flags: tuple[str, ...]) -> None:
    main = 'int main(void) { read_all(); if (strstr(text, "avx2")) puts("good"); fast(); END }'
    path = compile_c(KERNELS + READING + main.replace("END", END), *flags)
    assert observed(path, "qemu-x86_64", "Nehalem") == "dies"
    assert predicted(analyse(path), MODELS["Nehalem"]) == "dies"


def test_texts_are_looked_for_in_all_that_is_loaded_but_code_and_packed_gpu_code() -> None:
    source = """
    __attribute__((section(".nv_fatbin"), used)) const char packed[] = "first words, second words";
    __attribute__((section(".nv_fatbin.after"), used)) const char after[] = "second words";
    __attribute__((used)) char written[] = "first words";
    __asm__(".text; .type among, @object; among: .ascii \\"first words, third words\\"; .size among, 24; .data");
    int main(void) { return 0; }
    """
    path = compile_c(source)
    listed = map(str.split, run(need("readelf"), "-sW", path).stdout.splitlines())
    symbols = {fields[-1]: int(fields[1], 16) for fields in listed if "OBJECT" in fields}
    layout = Layout(Elf(path.read_bytes()))
    first, second, third = layout.addresses_of(b"first words", b"second words", b"third words")
    assert first.tolist() == [symbols["written"]]
    assert second.tolist() == [symbols["after"]]
    assert not len(third)
    assert layout.addresses_in_code(b"first words")[0].tolist() == [symbols["among"]]


def test_texts_are_looked_for_among_code_too_where_no_section_tells_it_apart() -> None:
    path = compile_c("__attribute__((used)) static const char known[] = \"first words\"; int main(void) { return 0; }",
                     "-Wl,-z,noseparate-code")  # fmt: skip
    data = bytearray(path.read_bytes())
    data[40:48], data[60:62] = bytes(8), bytes(2)
    layout = Layout(Elf(bytes(data)))
    (found,) = layout.addresses_of(b"first words")
    assert len(found) == 1
    assert layout.addresses_in_code(b"first words")[0].tolist() == found.tolist()


STRINGS = """
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
static int x[64];
static void fast() { __asm__ volatile("vmovdqu (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovdqu %%ymm1, (%0);"
                                      "vzeroupper" : : "r"(x) : "memory", "xmm1"); }
static void plain() { for (int i = 0; i < 8; i++) x[i] += x[i]; }
struct Flags {
    std::set<std::string> words;
    Flags() {
        std::ifstream in("/proc/cpuinfo");
        std::istringstream all(std::string(std::istreambuf_iterator<char>(in), {}));
        for (std::string word; all >> word;) words.insert(word);
    }
    bool has(const std::string &word) const { return words.count(word) != 0; }
};
int main() { Flags flags; if (flags.has("avx2")) fast(); else plain(); std::printf("%d\\n", x[3]); }
"""


@pytest.mark.parametrize("flags", [("-O0",), ("-Os", "-s"), ("-O2", "-fno-inline")], ids=" ".join)
def test_words_in_strings_of_cpp(flags: tuple[str, ...]) -> None:
    found = analyse(compile_c(STRINGS, *flags, compiler="g++", language="c++"))
    assert predicted(found, MODELS["Nehalem"]) == "unknown"
