"""Programs that ask the CPU before they go on, and end with a failure where it lacks something.

The programs are compiled here, and qemu-user is the oracle: one that is said to refuse a CPU ends there with a status
other than 0, and one that is not ends with 0.
"""

import subprocess
import time
from pathlib import Path

import pytest

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.documents.facts import Refusal
from tests.tools import compile_c, need

BEGINNING = """
#include <assert.h>
#include <cpuid.h>
#include <error.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define has __builtin_cpu_supports
static float x[1024], y[1024];
__attribute__((target("avx2,fma"), noinline)) void fast(void) { for (int i = 0; i < 1024; i++) x[i] = x[i] * y[i] + 1; }
__attribute__((noinline)) void plain(void) { for (int i = 0; i < 1024; i++) x[i] = x[i] * y[i] + 1; }
"""
END = 'printf("%f\\n", x[3]); return 0;'
WORDS = "this program needs AVX2"
REFUSING = {
    "returns a status": f"""
        int main(void) {{ if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }} fast(); {END} }}""",
    "exits": f"""
        int main(int count, char **given) {{
            if (!has("avx2")) {{ fprintf(stderr, "%s: {WORDS}\\n", given[0]); exit(2); }}
            fast(); {END}
        }}""",
    "a function of its own ends it": f"""
        __attribute__((noinline, noreturn)) void die(const char *why) {{
            fprintf(stderr, "fatal: %s\\n", why);
            exit(3);
        }}
        int main(void) {{ if (!has("avx2")) die("{WORDS}"); fast(); {END} }}""",
    "a function called first": f"""
        __attribute__((noinline)) static void check(void) {{ if (!has("avx2")) {{ puts("{WORDS}"); exit(1); }} }}
        int main(void) {{ check(); fast(); {END} }}""",
    "a function called second to that": f"""
        __attribute__((noinline)) static void check(void) {{ if (!has("avx2")) {{ puts("{WORDS}"); exit(1); }} }}
        __attribute__((noinline)) static void begin(void) {{ puts("begins"); check(); puts("has begun"); }}
        int main(int count, char **given) {{ begin(); if (count > 1) plain(); fast(); {END} }}""",
    "its end is taken for rare": f"""
        int main(void) {{ if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); abort(); }} fast(); {END} }}""",
    "it never returns": f"""
        int main(void) {{
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); exit(1); }}
            fast(); puts("done"); exit(0);
        }}""",
    "an initialiser": f"""
        __attribute__((constructor)) static void check(void) {{
            __builtin_cpu_init();
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); abort(); }}
        }}
        int main(void) {{ fast(); {END} }}""",
    "a result": f"""
        __attribute__((noinline)) static int good(void) {{ return has("avx2") && has("fma"); }}
        int main(void) {{ if (!good()) {{ fputs("{WORDS}\\n", stderr); return 1; }} fast(); {END} }}""",
    "what main returns is another function's": f"""
        __attribute__((noinline)) static int run(int count) {{
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            for (int i = 0; i < count; i++) fast();
            printf("%f\\n", x[3]);
            return 0;
        }}
        __attribute__((noinline)) static int begin(int count) {{
            puts("begins");
            int status = run(count);
            puts("is done");
            return status;
        }}
        int main(int count, char **given) {{ return begin(count); }}""",
    "cpuid itself": f"""
        static int good(void) {{
            unsigned a, b, c, d;
            return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 5 & 1;
        }}
        int main(void) {{ if (!good()) {{ fputs("{WORDS}\\n", stderr); return 1; }} fast(); {END} }}""",
    "nothing else of the kind in the file": f"""
        int main(void) {{ if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }} plain(); {END} }}""",
}
GOING_ON = {
    "only where it is asked for": f"""
        int main(int count, char **given) {{
            if (count > 1) {{ if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }} fast(); }}
            {END}
        }}""",
    "may be told otherwise": f"""
        int main(void) {{
            if (!has("avx2") && !getenv("HOME")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            plain(); {END}
        }}""",
    "hardly ever skips its work": f"""
        int main(void) {{
            if (__builtin_expect(!has("avx2"), 0)) {{ puts("{WORDS}"); exit(0); }}
            fast(); {END}
        }}""",
    "skips its work in what is taken for rare": f"""
        __attribute__((cold, noinline, noreturn)) static void skip(void) {{ puts("{WORDS}"); exit(0); }}
        int main(void) {{ if (!has("avx2")) {{ puts("goes no further"); skip(); }} fast(); {END} }}""",
    "skips its work": f'int main(void) {{ if (!has("avx2")) {{ puts("{WORDS}"); exit(0); }} fast(); {END} }}',
    "warns": f'int main(void) {{ if (!has("avx2")) fputs("{WORDS}\\n", stderr); plain(); {END} }}',
    "has a version for any CPU": f'int main(void) {{ if (has("avx2")) fast(); else plain(); {END} }}',
    "goes on as another program": f"""
        int main(int count, char **given) {{
            if (!has("avx2")) {{
                fputs("takes the plain one\\n", stderr);
                execv("/bin/true", given);
                perror("/bin/true");
                return 1;
            }}
            fast(); {END}
        }}""",
    "has another program do its work": f"""
        __attribute__((noinline)) static int handed(void) {{
            char *command[] = {{"true", 0}};
            int status;
            pid_t child;
            if (posix_spawn(&child, "/bin/true", 0, 0, command, 0)) exit(1);
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }}
        int main(void) {{ if (!has("avx2")) {{ exit(handed()); }} fast(); {END} }}""",
    "ends as it is told": f"""
        static int strict;
        __attribute__((noinline, noreturn)) static void die(const char *why) {{ puts(why); exit(strict); }}
        int main(int count, char **given) {{
            if (count > 1) strict = 1;
            if (!has("avx2")) die("{WORDS}");
            fast(); {END}
        }}""",
    "ends well by a function that may end badly": f"""
        __attribute__((noinline, noreturn)) static void die(int status, const char *why) {{ puts(why); exit(status); }}
        int main(int count, char **given) {{
            if (count > 3) die(1, "too many of them");
            if (!has("avx2")) die(0, "{WORDS}");
            fast(); {END}
        }}""",
    "tells of it by glibc's error": f"""
        int main(void) {{ if (!has("avx2")) error(0, 0, "{WORDS}"); plain(); {END} }}""",
    "what another function returns is not the status": f"""
        __attribute__((noinline)) static int run(void) {{
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            fast();
            return 0;
        }}
        int main(void) {{ if (run()) plain(); {END} }}""",
    "what another function returns is lost": f"""
        __attribute__((noinline)) static int run(void) {{
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            fast();
            return 0;
        }}
        __attribute__((noinline)) static int tell(void) {{ puts("is done"); return 0; }}
        int main(int count, char **given) {{ run(); plain(); return count > 3 ? 2 : tell(); }}""",
    "what another function returns is the status by chance": f"""
        __attribute__((noinline)) static int run(void) {{
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            fast();
            return 0;
        }}
        int main(int count, char **given) {{ int told = run(); plain(); return count > 1 ? told : 0; }}""",
    "wants less": f"""
        int main(void) {{
            if (!has("sse2")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            if (has("avx2")) fast(); else plain();
            {END}
        }}""",
    "refuses more": f"""
        int main(void) {{ if (has("avx512f")) {{ fputs("{WORDS}\\n", stderr); return 1; }} plain(); {END} }}""",
}
LEVELS = ["-O0", "-O2"]


def refused(code: str, *flags: str) -> Refusal | None:
    return refusal_of(compile_c(BEGINNING + code, *flags))


def refusal_of(program: Path) -> Refusal | None:
    found = analyse_isa(Elf(program.read_bytes()))
    assert found
    return found.refusal


def compile_cpp(code: str, level: str) -> Path:
    return compile_c(CPP_BEGINNING + code, level, compiler="g++", language="c++")


def status(code: str, cpu: str, *flags: str) -> int:
    return ended(compile_c(BEGINNING + code, *flags), cpu)


def ended(program: Path, cpu: str) -> int:
    environment = {"HOME": "/"}
    qemu = [need("qemu-x86_64"), "-cpu", cpu, str(program)]
    return subprocess.run(qemu, env=environment, capture_output=True, check=False).returncode


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", REFUSING)
def test_program_that_ends_on_a_cpu_says_so(shape: str, level: str) -> None:
    assert refused(REFUSING[shape], level) == Refusal("x86-64-v3", WORDS, ("avx2",))
    assert status(REFUSING[shape], "Nehalem", level) not in (0, 132, -4)
    assert status(REFUSING[shape], "Haswell", level) == 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", GOING_ON)
def test_program_that_goes_on_refuses_nothing(shape: str, level: str) -> None:
    assert refused(GOING_ON[shape], level) is None
    assert status(GOING_ON[shape], "Nehalem", level) == 0


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_server_demands_is_seen_too(level: str) -> None:
    code = f"""
        int main(void) {{
            if (!has("avx2")) {{ fputs("{WORDS}\\n", stderr); return 1; }}
            for (;;) {{ fast(); puts("served"); }}
        }}"""
    assert refused(code, level) == Refusal("x86-64-v3", WORDS, ("avx2",))


@pytest.mark.parametrize("level", LEVELS)
def test_a_failure_that_is_told_after_the_work_is_no_refusal(level: str) -> None:
    code = f"""
        int main(void) {{
            int failed = 0;
            if (!has("avx2")) {{ puts("{WORDS}"); failed = 1; }}
            plain();
            return failed;
        }}"""
    assert refused(code, level) is None


@pytest.mark.parametrize("level", LEVELS)
def test_a_test_for_another_vendor_names_no_feature(level: str) -> None:
    code = f"""
        int main(void) {{
            unsigned a, b, c, d;
            __get_cpuid(0, &a, &b, &c, &d);
            if (b != 0x756e6547) {{ fputs("this program is for Intel's CPUs\\n", stderr); return 1; }}
            plain(); {END}
        }}"""
    assert refused(code, level) is None


@pytest.mark.parametrize("call", ["error(1, 0, words)", "error_at_line(2, 0, __FILE__, __LINE__, words)"])
def test_glibcs_error_ends_a_program_where_it_is_told_a_status(call: str) -> None:
    code = f"""
        int main(void) {{
            const char *words = "{WORDS}";
            if (!has("avx2")) {call};
            fast(); {END}
        }}"""
    assert refused(code, "-O2") == Refusal("x86-64-v3", WORDS, ("avx2",))
    assert status(code, "Nehalem", "-O2") == int(call[call.index("(") + 1])


CPP_BEGINNING = """
#include <cstdlib>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#define has __builtin_cpu_supports
static float x[1024];
__attribute__((target("avx2,fma"), noinline)) static void fast() { for (float &each : x) each = each * each + 1; }
__attribute__((noinline)) static void plain() { for (float &each : x) each = each * each + 1; }
"""
CPP_LEVELS = ["-O1", "-O2", "-O3"]
CPP_END = "std::cout << x[3] << std::endl; return 0;"
CPP_REFUSING = {
    "a stream": f"""
        int main() {{ if (!has("avx2")) {{ std::cerr << "{WORDS}" << std::endl; return 1; }} fast(); {CPP_END} }}""",
    "a stream, and exit": f"""
        int main(int count, char **given) {{
            std::vector<std::string> names(given, given + count);
            if (!has("avx2")) {{ std::cerr << names[0] << ": {WORDS}" << std::endl; std::exit(1); }}
            fast(); {CPP_END}
        }}""",
    "behind what may fail by itself": f"""
        static void check() {{ if (!has("avx2")) {{ std::cerr << "{WORDS}" << std::endl; std::exit(2); }} }}
        int main(int count, char **given) {{
            std::map<std::string, int> known;
            for (int i = 0; i < count; i++) known[given[i]] = i;
            check();
            fast();
            std::cout << known.size() << std::endl;
            return 0;
        }}""",
    "an object that is there before main": f"""
        struct Check {{ Check() {{ if (!has("avx2")) {{ std::cerr << "{WORDS}" << std::endl; std::abort(); }} }} }};
        static std::vector<std::string> names{{"one", "two"}};
        static Check check;
        int main() {{ fast(); std::cout << names.size() << std::endl; return 0; }}""",
}
CPP_GOING_ON = {
    "what may be caught": f"""
        int main() {{
            try {{
                if (!has("avx2")) throw std::runtime_error("{WORDS}");
                fast();
            }} catch (const std::exception &) {{
                plain();
            }}
            {CPP_END}
        }}""",
    "what the library throws may be caught, too": f"""
        __attribute__((noinline)) static int chosen(const std::string &names) {{
            if (!has("avx2")) return std::stoi(names);
            fast();
            return 1;
        }}
        int main(int count, char **given) {{
            try {{ std::cout << chosen(given[0]) << std::endl; }} catch (const std::exception &) {{ plain(); }}
            {CPP_END}
        }}""",
    "warns": f"""
        int main() {{ if (!has("avx2")) std::cerr << "{WORDS}" << std::endl; plain(); {CPP_END} }}""",
}


@pytest.mark.parametrize("level", CPP_LEVELS)
@pytest.mark.parametrize("shape", CPP_REFUSING)
def test_program_in_cpp_that_ends_on_a_cpu_says_so(shape: str, level: str) -> None:
    program = compile_cpp(CPP_REFUSING[shape], level)
    assert refusal_of(program) == Refusal("x86-64-v3", WORDS, ("avx2",))
    assert ended(program, "Nehalem") not in (0, 132, -4)
    assert ended(program, "Haswell") == 0


@pytest.mark.parametrize("level", CPP_LEVELS)
@pytest.mark.parametrize("shape", CPP_GOING_ON)
def test_program_in_cpp_that_goes_on_refuses_nothing(shape: str, level: str) -> None:
    program = compile_cpp(CPP_GOING_ON[shape], level)
    assert refusal_of(program) is None
    assert ended(program, "Nehalem") == 0


def test_what_a_stripped_program_demands_is_seen_too() -> None:
    assert refused(REFUSING["returns a status"], "-O2", "-s") == Refusal("x86-64-v3", WORDS, ("avx2",))


def test_of_features_that_have_each_other_for_a_precondition_one_is_named() -> None:
    code = REFUSING["returns a status"].replace("avx2", "avx512f")
    assert refused(code, "-O2") == Refusal("x86-64-v4", WORDS, ("avx512f",))


def test_a_static_program_does_not_show_that_it_goes_on_as_another() -> None:
    assert refused(GOING_ON["goes on as another program"], "-O2", "-static") is None


def test_a_library_is_loaded_whatever_its_functions_demand() -> None:
    code = f'void check(void) {{ if (!has("avx2")) {{ puts("{WORDS}"); exit(1); }} fast(); }}'
    assert refused(code, "-O2", "-shared", "-fPIC") is None


def test_words_that_are_not_seen_are_left_out() -> None:
    code = f'int main(void) {{ if (!has("avx2")) abort(); fast(); {END} }}'
    assert refused(code, "-O2") == Refusal("x86-64-v3", "", ("avx2",))


def test_thousands_of_demands_are_told_in_linear_time() -> None:
    def seconds(tests: int) -> float:
        each = "".join(f'"test ${1 << at % 30}, %ebx\\n jz 9f\\n"' for at in range(tests))
        code = f"""
            __attribute__((naked)) int main(void) {{
                __asm__("push %rbx\\n mov $7, %eax\\n xor %ecx, %ecx\\n cpuid\\n" {each}
                        "xor %eax, %eax\\n pop %rbx\\n ret\\n 9: call abort\\n");
            }}"""
        program = Elf(compile_c(f"void abort(void); {code}", "-O1", "-no-pie").read_bytes())
        began = time.process_time()
        found = analyse_isa(program)
        assert found and found.refusal
        return time.process_time() - began

    seconds(100)
    assert seconds(4_800) < 20 * max(seconds(600), 0.02)
