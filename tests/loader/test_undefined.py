"""LIB007: symbols that nothing defines, held against what the real loaders and Python say of the same files."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from imgcheck.check.context import Answers
from imgcheck.documents.facts import LIBCUDA
from imgcheck.documents.host import HostLibrary, known
from imgcheck.documents.report import Finding
from tests.loader.builder import Root
from tests.loader.test_library_rules import DRIVER, host, judged, only, outcome
from tests.tools import need

APP, LIBRARY = "/usr/bin/app", "/usr/lib/libx.so.1"
SITE = "/usr/lib/python3.11/site-packages"
CALLS, READS = "void gone(void); int main(void){gone(); return 0;}", "extern int gone; int main(void){return gone;}"
SYMBOLS = tuple("abcdef")
SEEDS = range(12)
NOW = ("-Wl,-z,now",)
LAZY = ("-Wl,-z,lazy",)
MUSL = "/lib/ld-musl-x86_64.so.1"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    need("gcc")
    return Root(tmp_path / "root")


def library(root: Root, path: str, code: str, flags: tuple[str, ...] = LAZY, needs: tuple[str, ...] = ()) -> None:
    """One with a soname by its file's name."""
    root.program(path, needs, ["-shared", "-fPIC", f"-Wl,-soname,{Path(path).name}", *flags], code)


def program(root: Root, code: str, *needs: str, flags: tuple[str, ...] = LAZY) -> None:
    """A program that was linked while its libraries still had all symbols."""
    whole = [f"/tmp/whole/{Path(need).name}" for need in needs]
    for path in whole:
        library(root, path, "int gone;" + "".join(f"void {name}(void) {{}}" for name in SYMBOLS))
    root.program(APP, whole, list(flags), code)
    shutil.rmtree(root.at("/tmp/whole"), ignore_errors=True)


def answers(root: Root, *command: str) -> Answers:
    return judged(root.profile(), host(), command=command or (APP,))


def said(root: Root, *variables: str) -> str:
    """What the loader says where the program is started."""
    command = [need("chroot"), str(root.path), "/usr/bin/env", "-i", *variables, APP]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


@pytest.mark.parametrize(
    ("code", "flags", "severity"), [(CALLS, LAZY, "risk"), (CALLS, NOW, "fail"), (READS, LAZY, "fail")]
)
def test_a_library_that_lost_a_symbol_is_told_in_the_loaders_words(
    root: Root, code: str, flags: tuple[str, ...], severity: str
) -> None:
    library(root, LIBRARY, "void other(void) {}")
    program(root, code, LIBRARY, flags=flags)
    finding = only(answers(root), "LIB007")
    assert (finding.severity, finding.predicted_error) == (severity, said(root))
    assert "No file of the image has it." in finding.why


def test_a_symbol_that_is_there_or_weak_is_no_finding(root: Root) -> None:
    library(root, LIBRARY, "void gone(void) {}")
    program(root, "void gone(void), weak(void) __attribute__((weak)); int main(void){gone(); return !!weak;}", LIBRARY)
    assert outcome(answers(root), "LIB007") == "ok"
    assert said(root) == ""


def test_an_older_library_of_the_name_that_comes_first_is_named_with_the_one_that_would_serve(root: Root) -> None:
    library(root, "/opt/old/libx.so.1", "void other(void) {}")
    library(root, "/opt/new/libx.so.1", "int gone; void other(void) {}")
    program(root, READS, "/opt/new/libx.so.1", flags=("-Wl,-rpath,/opt/old:/opt/new",))
    finding = only(answers(root), "LIB007")
    assert finding.predicted_error == said(root)
    assert "/opt/old/libx.so.1 is loaded, which lacks it; /opt/new/libx.so.1 has it." in finding.why
    root.at("/opt/old/libx.so.1").unlink()
    assert outcome(answers(root), "LIB007") == "ok"
    assert said(root) == ""


def test_what_no_one_loads_helps_only_where_it_is_preloaded(root: Root) -> None:
    library(root, "/usr/lib/libother.so", "int gone;")
    library(root, LIBRARY, "extern int gone; int *there = &gone;")
    program(root, "int main(void){return 0;}", LIBRARY)
    finding = only(answers(root), "LIB007")
    assert (finding.severity, finding.predicted_error) == ("fail", said(root))
    assert "/usr/lib/libother.so has it, which nothing loads" in finding.why
    root.write("/etc/ld.so.preload", "/usr/lib/libother.so\n")
    assert outcome(answers(root), "LIB007") == "ok"
    assert said(root) == ""


def test_a_program_may_give_a_symbol_to_its_libraries(root: Root) -> None:
    library(root, LIBRARY, "extern int gone; int *there = &gone;")
    program(root, "int gone; int main(void){return 0;}", LIBRARY, flags=("-rdynamic",))
    assert outcome(answers(root), "LIB007") == "ok"
    assert said(root) == ""
    program(root, "int main(void){return 0;}", LIBRARY)
    assert only(answers(root), "LIB007").predicted_error == said(root)


def test_where_a_library_is_missing_that_alone_is_told(root: Root) -> None:
    program(root, READS, LIBRARY)
    found = answers(root)
    assert only(found, "LIB001")
    assert outcome(found, "LIB007") == "ok"


@pytest.mark.parametrize(
    ("soname", "symbol", "expected"),
    [
        (LIBCUDA, "gone", "ok"),
        # The driver's libraries have functions of C alone: so an extension for GPUs is told, too.
        (LIBCUDA, "_ZN2at4goneEv", "fail"),
        ("libmpi.so.40", "_ZN2at4goneEv", "ok"),
    ],
)
def test_a_library_of_the_host_may_have_anything(root: Root, soname: str, symbol: str, expected: str) -> None:
    library(root, f"/tmp/{soname}", "void other(void) {}")
    library(root, LIBRARY, f"extern int {symbol}; int *there = &{symbol};", needs=(f"/tmp/{soname}",))
    root.at(f"/tmp/{soname}").unlink()
    program(root, "int main(void){return 0;}", LIBRARY)
    libraries = known((HostLibrary(f"/usr/lib64/{soname}", soname),), "test")
    machine = host(driver=DRIVER, libraries=libraries)
    assert outcome(judged(root.profile(), machine, "nvidia", (APP,)), "LIB007") == expected
    assert outcome(answers(root), "LIB007") == expected  # it is missing


def test_functions_of_the_cuda_driver_are_gpu009s(root: Root) -> None:
    library(root, LIBRARY, "int cuInit(unsigned); int (*kept)(unsigned) = cuInit;")
    program(root, "int main(void){return 0;}", LIBRARY)
    assert outcome(answers(root), "LIB007") == "ok"
    library(root, LIBRARY, "int cuIt(unsigned); int (*kept)(unsigned) = cuIt;")
    assert outcome(answers(root), "LIB007") == "fail"


def module(root: Root, code: str, needs: tuple[str, ...] = (), flags: tuple[str, ...] = LAZY) -> str:
    """A module of Python, and a Python."""
    root.program("/usr/bin/python3.11")
    path = f"{SITE}/core.cpython-311-x86_64-linux-gnu.so"
    root.program(path, needs, ["-shared", "-fPIC", *flags], f"{code} void *PyInit_core(void) {{ return run(); }}")
    return path


def imported(root: Root, path: str) -> str:
    """What Python says where it imports the module, whichever release it is."""
    code = f"from importlib.util import *; module_from_spec(spec_from_file_location('core', {str(root.at(path))!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1].replace(str(root.path), "")


def of_module(root: Root) -> Finding:
    return only(answers(root, "python3.11", "-c", "import core"), "LIB007")


def test_python_binds_all_of_a_module_at_once(root: Root) -> None:
    """As the extensions of PyTorch and TensorFlow fail that were built with another release of these."""
    path = module(root, "void *gone(void); void *run(void) { return gone(); }")
    finding = of_module(root)
    assert (finding.severity, finding.predicted_error) == ("fail", imported(root, path))


def test_a_library_that_is_missing_yet_in_the_image_has_no_more_than_the_image(root: Root) -> None:
    """The extension asks for it by its name alone, and finds it where its framework has been imported before."""
    library(root, f"{SITE}/framework/libx.so.1", "void other(void) {}")
    module(root, "void *gone(void); void *run(void) { return gone(); }", (f"{SITE}/framework/libx.so.1",))
    assert of_module(root).severity == "fail"
    library(root, f"{SITE}/framework/libx.so.1", "void gone(void) {}")
    assert outcome(answers(root, "python3.11", "-c", "import core"), "LIB007") == "ok"


def test_what_opens_a_module_may_have_loaded_what_it_asks_for(root: Root) -> None:
    module(root, "void *gone(void); void *run(void) { return gone(); }")
    library(root, f"{SITE}/framework/libx.so.1", "void gone(void) {}")
    assert outcome(answers(root, "python3.11", "-c", "import core"), "LIB007") == "ok"


def test_what_a_module_gets_in_the_place_of_another_of_the_name_is_what_counts(root: Root) -> None:
    """As where LD_LIBRARY_PATH leads to an older libnvJitLink.so.12 than the one beside PyTorch."""
    library(root, "/opt/old/libx.so.1", "void other(void) {}")
    library(root, f"{SITE}/own/libx.so.1", "void gone(void) {} void other(void) {}")
    search = ("-Wl,-rpath,/opt/old:$ORIGIN/own", *LAZY)
    module(root, "void *gone(void); void *run(void) { return gone(); }", (f"{SITE}/own/libx.so.1",), search)
    assert "/opt/old/libx.so.1 is loaded, which lacks it" in of_module(root).why


def test_a_library_that_a_text_names_is_opened_by_python_and_not_by_what_starts_it(root: Root) -> None:
    root.program("/usr/bin/python3.11")
    library(root, "/opt/old/libx.so.1", "void other(void) {}")
    library(root, "/opt/own/libx.so.1", "void gone(void) {} void other(void) {}")
    library(root, "/opt/own/libuser.so", "void gone(void); void f(void) { gone(); }", needs=("/opt/own/libx.so.1",))
    root.write("/opt/use.py", "import ctypes\nctypes.CDLL('/opt/own/libuser.so')\n")
    command = ("python3.11", "/opt/use.py")
    finding = only(answers(root, "env", "LD_LIBRARY_PATH=/opt/old", *command), "LIB007")
    assert (finding.severity, finding.predicted_error) == ("risk", "/opt/own/libuser.so: undefined symbol: gone")
    assert outcome(answers(root, "env", "LD_LIBRARY_PATH=/opt/own", *command), "LIB007") == "ok"


def test_a_module_whose_python_is_not_in_the_image_may_get_all_from_it(root: Root) -> None:
    module(root, "void *PyGone(void); void *run(void) { return PyGone(); }")
    assert of_module(root).severity == "fail"
    root.at("/usr/bin/python3.11").unlink()
    assert outcome(judged(root.profile(), host()), "LIB007") == "ok"


def test_a_profile_that_tells_nothing_of_symbols_leaves_them_open(root: Root) -> None:
    library(root, LIBRARY, "void other(void) {}")
    program(root, CALLS, LIBRARY)
    image = root.profile()
    old = structs.replace(image, tree=structs.replace(image.tree, undefined=None))
    assert outcome(judged(old, host(), command=(APP,)), "LIB007") == "unknown"


def test_a_library_that_is_only_there_is_information(root: Root) -> None:
    program(root, "int main(void){return 0;}")
    library(root, "/opt/plugins/libplugin.so", "extern int gone; int *there = &gone;")
    assert only(answers(root), "LIB007").severity == "info"


@pytest.mark.parametrize("code", [CALLS, READS])
def test_musl_binds_all_at_once_and_says_it_in_its_own_words(root: Root, code: str) -> None:
    need("musl-gcc")
    for each in ("/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/env"):
        root.at(each).unlink()
    root.at(MUSL).write_bytes(Path(MUSL).resolve().read_bytes())
    root.at(MUSL).chmod(0o755)
    program(root, code, LIBRARY, flags=("-nostdlib", "-Wl,-e,main", f"-Wl,--dynamic-linker={MUSL}", *LAZY))
    library(root, LIBRARY, "void other(void) {}", ("-nostdlib",))
    finding = only(answers(root), "LIB007")
    real = subprocess.run(
        [need("chroot"), str(root.path), APP], capture_output=True, text=True, check=False
    ).stderr.strip()
    assert (finding.severity, finding.predicted_error) == ("fail", real)


def graph(root: Root, seed: int) -> None:
    """Libraries that need each other, each with some of a few symbols, of which it wants others, and a program."""
    draw = random.Random(seed)
    made: list[str] = []
    for number in range(4):
        own = draw.sample(SYMBOLS, draw.randint(0, 3))
        path = f"/usr/lib/lib{number}.so"
        needs = tuple(draw.sample(made, draw.randint(0, len(made))))
        library(root, path, code(draw, own), (*draw.choice([LAZY, NOW]), "-Wl,-Bsymbolic-functions"), needs)
        made.append(path)
    own = draw.sample(SYMBOLS, draw.randint(0, 1))
    flags = (*draw.choice([LAZY, NOW]), *draw.choice([(), ("-rdynamic",)]))
    program(root, code(draw, own) + " int main(void){return 0;}", *draw.sample(made, draw.randint(1, 3)), flags=flags)


def code(draw: random.Random, own: list[str]) -> str:
    defined = "".join(f"void {name}(void) {{}}" for name in own)
    others = [name for name in SYMBOLS if name not in own]
    wanted = draw.sample(others, draw.randint(0, 2))
    text = defined + "".join(f"void {name}(void);" for name in wanted)
    for name in wanted:
        text += draw.choice([f"static void call_{name}(void) {{ {name}(); }}"
                             f"void *keep_{name}_{draw.randrange(1 << 30)} = call_{name};",
                             f"void *at_{name}_{draw.randrange(1 << 30)} = {name};"])  # fmt: skip
    return text


@pytest.mark.parametrize("seed", SEEDS)
def test_random_libraries_fail_as_the_real_loader_says(root: Root, seed: int) -> None:
    graph(root, seed)
    found = [finding for finding in answers(root) if finding.rule == "LIB007" and finding.severity != "info"]
    at_load = [finding.predicted_error for finding in found if finding.severity == "fail"]
    everything = [finding.predicted_error for finding in found]
    for real, told in ((said(root), at_load), (said(root, "LD_BIND_NOW=1"), everything)):
        assert bool(real) == bool(told), (real, everything)
        # Of several files the loader names the one that it comes to first.
        assert not real or any(real.split(": undefined symbol: ")[0] in each for each in told)


def test_the_random_libraries_have_all_kinds(tmp_path: Path) -> None:
    """Of the seeds above: some run, some fail at load, and some only where all is bound at once."""
    kinds = set()
    for seed in SEEDS:
        root = Root(tmp_path / str(seed))
        graph(root, seed)
        kinds.add((bool(said(root)), bool(said(root, "LD_BIND_NOW=1"))))
    assert kinds == {(False, False), (False, True), (True, True)}
