"""Modules of machine code that interpreters may load: a risk for what starts these, and nothing to others."""

import subprocess
import time
import zipfile
from pathlib import Path

import pytest
from msgspec import structs

from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, Platform, TreeIndex
from imgcheck.loader.interpreters import interpreter_of, interpreters
from imgcheck.loader.model import close
from imgcheck.loader.native_modules import interpreted, native_modules
from imgcheck.loader.tree import Tree
from tests.check.contexts import findings, judged_libraries
from tests.loader.builder import Root

MODULES = {
    "/usr/bin/perl": "/usr/lib/x86_64-linux-gnu/perl5/5.36/auto/DBD/Pg/Pg.so",
    "/usr/bin/ruby3.1": "/usr/lib/x86_64-linux-gnu/ruby/vendor_ruby/3.1.0/pg_ext.so",
    "/usr/lib/R/bin/exec/R": "/usr/local/lib/R/site-library/xml2/libs/xml2.so",
    "/usr/local/sbin/php-fpm": "/usr/local/lib/php/extensions/no-debug-non-zts-20220829/gd.so",
    "/usr/bin/lua5.4": "/usr/local/lib/lua/5.4/posix.so",
    "/usr/bin/tclsh8.6": "/usr/lib/tcltk/sqlite3/libtclsqlite3.so",
    "/usr/bin/guile-3.0": "/usr/lib/x86_64-linux-gnu/guile/3.0/extensions/readline.so",
    "/usr/bin/octave-cli-7.3.0": "/usr/share/octave/packages/image/bwfill.oct",
    "/usr/lib/erlang/erts-13.1.5/bin/beam.smp": "/usr/lib/erlang/lib/crypto-5.1.2/priv/lib/crypto.so",
    "/usr/bin/ocamlrun": "/usr/lib/ocaml/stublibs/dllunix.so",
    "/usr/bin/dotnet": "/app/libfast.so",
    "/usr/bin/node": "/app/native/fast.node",
    "/usr/lib/jvm/java-17-openjdk-amd64/bin/java": "/usr/share/java/fast.jar!/native/linux-x86_64/libfast.so",
}
"""Of every kind of interpreter one program, and a module where Debian or Docker's official image has it."""


_OPENS = "int main(int c, char **v) { return dlopen(v[1], RTLD_NOW) ? 9 : !puts(dlerror()); }"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


def broken(root: Root, path: str, gone: str = "libgone.so.1") -> None:
    """A library at `path` that misses one."""
    root.library(f"/{gone}")
    root.library(path, [f"/{gone}", "/lib/x86_64-linux-gnu/libc.so.6"], soname="")
    root.at(f"/{gone}").unlink()


def packed(root: Root, path: str) -> None:
    """A broken library in a Java archive."""
    archive, _, name = path.partition("!/")
    broken(root, f"/{Path(name).name}")
    root.at(archive).parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root.at(archive), "a", zipfile.ZIP_DEFLATED) as file:
        file.write(root.at(f"/{Path(name).name}"), name)
    root.at(f"/{Path(name).name}").unlink()


def told(root: Root, *command: str) -> list[tuple[str, str]]:
    return severe(root.profile(), *command)


def severe(image: ImageProfile, *command: str) -> list[tuple[str, str]]:
    """The severity of LIB001 where it is more than an information, and the file that it is about."""
    found = findings(judged_libraries(image, *command), "LIB001")
    return [(finding.severity, finding.evidence[0].path) for finding in found if finding.severity != "info"]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    """All kinds of interpreters in one image, each with a module that misses a library of its own."""
    root = Root(tmp_path_factory.mktemp("interpreters") / "root")
    root.program("/usr/bin/other")
    for number, (program, module) in enumerate(MODULES.items()):
        root.program(program)
        if "!" in module:
            packed(root, module)
        else:
            broken(root, module, f"lib{number}.so.1")
    return root.profile()


@pytest.mark.parametrize("program", [*MODULES, "/usr/bin/other"])
def test_a_module_of_an_interpreter_that_starts_is_a_risk(every: ImageProfile, program: str) -> None:
    elsewhere = {path for path in MODULES.values() if not path.startswith("/app/")}
    found = {path for _, path in severe(every, program, "/srv/main.x")}
    assert found == ({MODULES[program]} if program in MODULES else set()) & elsewhere
    beside = {path for severity, path in severe(every, program, "/app/main.x") if severity == "risk"}
    assert MODULES.get(program) in {*beside, None}


def test_every_kind_of_interpreter_is_looked_at() -> None:
    looked_at = {interpreter_of(Path(program).name) for program in MODULES}
    assert looked_at == set(interpreters())
    assert all(each.sources for each in interpreters())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("perl -e x", ""),
        ("perl -I/opt/p -e x", "risk"),
        ("PERL5LIB=/usr/share/perl5:/opt/p perl -e x", "risk"),
        ("export PERL5LIB=p; cd /opt; perl -e x", "risk"),
        ("/opt/p/bin/perl -e x", "risk"),
    ],
)
def test_modules_count_where_their_interpreter_looks(root: Root, command: str, expected: str) -> None:
    for program in ("/bin/sh", "/usr/bin/perl", "/opt/p/bin/perl"):
        root.program(program)
    module = "/opt/p/auto/Fast/Fast.so"
    broken(root, module)
    assert told(root, "/bin/sh", "-c", command) == ([(expected, module)] if expected else [])


@pytest.mark.parametrize(
    ("command", "path", "expected"),
    [
        ("lua5.4 /srv/app/run.lua", "/srv/app/native/fast.so", "risk"),
        ("lua5.4 /run.lua", "/srv/app/native/fast.so", ""),
        ("java -Djava.library.path=/usr/java/lib:/opt/jni -jar app.jar", "/opt/jni/libfast.so", "risk"),
        ("java -jar app.jar", "/opt/jni/libfast.so", ""),
        ("lua5.4 -e 'package.cpath=\"/opt/lua/?.so\"'", "/opt/lua/fast.so", "risk"),
        ("lua5.4 -e 'load(\"/opt/lua/fast\")'", "/opt/lua/fast.so", "risk"),
        ("lua5.4 -I /opt/lua -e x", "/opt/lua/fast.so", "risk"),
        ("lua5.4 -e 'print(1/opt/lua/fast)'", "/opt/lua/fast.so", ""),
        ("host plugins/fast.so", "/srv/plugins/fast.so", "risk"),
        ("host --plugin=/srv/plugins/fast.so", "/srv/plugins/fast.so", "risk"),
        ("host /srv/plugins", "/srv/plugins/fast.so", ""),
        ("host --prefix=/usr/lib", "/usr/lib/fast.so", ""),
    ],
)
def test_what_words_of_the_command_point_to(root: Root, command: str, path: str, expected: str) -> None:
    root.program("/bin/sh")
    for program in ("lua5.4", "java", "host"):
        root.program(f"/usr/bin/{program}")
    broken(root, path)
    found = told(root, "/bin/sh", "-c", f"cd /srv; exec {command}")
    assert found == ([(expected, path)] if expected else [])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("java -jar /opt/app/fast.jar", "risk"),
        ("java -cp '/opt/app/*' Main", "risk"),
        ("java -cp /srv/x.jar:/opt/app/fast.jar Main", "risk"),
        ("java --class-path=/opt/app/fast.jar Main", "risk"),
        ("CLASSPATH='/opt/app/*' java Main", "risk"),
        ("cd /opt/app; java -jar fast.jar", "risk"),
        ("cd /opt; java -jar app/fast.jar", "risk"),
        ("cd /opt; java -jar top.jar", ""),
        ("java -cp /opt/other.jar Main", ""),
        ("java -version", ""),
        ("host /opt/app/fast.jar", ""),
    ],
)
def test_libraries_in_archives_count_where_their_class_path_leads(root: Root, command: str, expected: str) -> None:
    root.program("/bin/sh")
    for program in ("java", "host"):
        root.program(f"/usr/bin/{program}")
    packed(root, library := "/opt/app/fast.jar!/linux/libfast.so")
    assert told(root, "/bin/sh", "-c", command) == ([(expected, library)] if expected else [])


def test_libraries_in_an_archive_among_files_of_all_kinds(root: Root) -> None:
    root.program("/usr/bin/java")
    root.program("/bin/sh")
    packed(root, library := "/fast.jar!/libfast.so")
    packed(root, "/other.jar!/libother.so")
    for command in ("java -jar /fast.jar", "cd /; java -jar fast.jar"):
        assert told(root, "/bin/sh", "-c", command) == [("risk", library)]


def test_libraries_in_archives_for_other_machines_and_systems_say_nothing(root: Root) -> None:
    root.program("/usr/bin/java")
    packed(root, library := "/app/fast.jar!/linux/libfast.so")
    with zipfile.ZipFile(root.at("/app/fast.jar"), "a") as file:
        for system, c_library in (("musl", "libc.musl-x86_64.so.1"), ("bsd", "libc.so.7"), ("sun", "libm.so.2")):
            root.library(f"/{c_library}")
            root.library("/other.so", [f"/{c_library}"])
            root.at(f"/{c_library}").unlink()
            file.write(root.at("/other.so"), f"{system}/libfast.so")
        other = bytearray(root.at("/other.so").read_bytes())
        other[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
        file.writestr("aarch64/libfast.so", other)
    root.at("/other.so").unlink()
    answers = judged_libraries(root.profile(), "/usr/bin/java", "-jar", "/app/fast.jar")
    (finding,) = findings(answers, "LIB001")
    assert [evidence.path for evidence in finding.evidence] == [library]
    assert finding.severity == "risk"


@pytest.mark.parametrize("has_own", [True, False])
def test_a_java_of_musl_takes_libraries_for_glibc_where_the_archive_has_no_others(has_own: bool) -> None:
    loader, java = "/lib/ld-musl-x86_64.so.1", "/usr/bin/java"
    machine = Linkage(elf_class=64, machine="x86_64", type="shared", needed=("libc.musl-x86_64.so.1",))
    kinds = {
        loader: structs.replace(machine, needed=(), soname="libc.musl-x86_64.so.1"),
        java: structs.replace(machine, type="executable", interpreter=loader),
        "/app/x.jar!/linux/libx.so": structs.replace(machine, needed=("libc.so.6", "ld-linux-x86-64.so.2")),
        "/app/x.jar!/sun/libx.so": structs.replace(machine, needed=("libc.so.1", "libsocket.so.1")),
        "/app/y.jar!/musl/liby.so": machine,
    } | ({"/app/x.jar!/linux-musl/libx.so": machine} if has_own else {})
    files = tuple(FileRecord(path, path, 0, path in (java, loader)) for path in kinds)
    objects = {path: CodeFacts(1, linkage) for path, linkage in kinds.items()}
    image = ImageProfile("1.0", "x", Platform(), ImageConfig(), (), files, objects, TreeIndex())
    found = findings(judged_libraries(image, java, "-jar", "/app/x.jar"), "LIB001")
    told = [(finding.severity, finding.title, finding.evidence[0].path) for finding in found]
    missing = ("risk", "Library missing: ld-linux-x86-64.so.2", "/app/x.jar!/linux/libx.so")
    assert told == ([] if has_own else [missing])
    assert [finding.predicted_error for finding in found] == (
        []
        if has_own
        else [
            "Error loading shared library ld-linux-x86-64.so.2: No such file or directory "
            "(needed by /app/x.jar!/linux/libx.so)"
        ]
    )


def test_libraries_in_archives_are_a_risk_where_anything_may_start(root: Root) -> None:
    root.program("/usr/bin/java")
    packed(root, library := "/app/fast.jar!/linux/libfast.so")
    reaches = close(root.profile()).reaches
    assert (reaches["/usr/bin/java"], reaches[library]) == ("entry", "path")


def test_libraries_in_archives_are_no_matter_where_no_java_starts(root: Root) -> None:
    root.program("/usr/bin/other")
    packed(root, "/app/fast.jar!/linux/libfast.so")
    assert not findings(judged_libraries(root.profile(), "/usr/bin/other"), "LIB001")


def test_a_module_finds_what_its_interpreter_has_loaded(root: Root) -> None:
    root.library("/opt/R/lib/libR.so")
    root.program("/opt/R/bin/exec/R", ["/opt/R/lib/libR.so"], flags=["-Wl,-rpath,$ORIGIN/../../lib"])
    root.library("/opt/R/library/stats/libs/stats.so", ["/opt/R/lib/libR.so"])
    assert told(root, "/opt/R/bin/exec/R") == []


def test_thousands_of_starts_take_no_longer_than_one() -> None:
    machine = Linkage(elf_class=64, machine="x86_64", type="shared")
    paths = [f"/usr/lib/x{number}/auto/M/M.so" for number in range(5000)]
    programs = [f"/opt/x{number}/bin/perl5" for number in range(5000)]
    files = tuple(FileRecord(path, "m", 0) for path in (*paths, *programs))
    image = ImageProfile("1.0", "x", Platform(), ImageConfig(), (), files, {"m": CodeFacts(1, machine)}, TreeIndex())
    tree, words = Tree(image), ("-e", "load('/opt/a/b'); " * 10)
    began = time.process_time()
    starts = [interpreted(path, "perl", words, ["/"], [f"/opt/{path}"]) for path in programs]
    found = list(native_modules(tree, [start for start in starts if start]))
    assert time.process_time() - began < 10
    assert found == paths


def test_what_one_would_see_is_what_dlopen_says(root: Root) -> None:
    root.program("/usr/bin/host")
    broken(root, "/opt/fast.so")
    answers = judged_libraries(root.profile(), "/usr/bin/host", "/opt/fast.so")
    (finding,) = findings(answers, "LIB001")
    root.write("/open.c", f"#include <dlfcn.h>\n#include <stdio.h>\n{_OPENS}\n")
    subprocess.run(["gcc", "-o", root.at("/open"), root.at("/open.c"), "-ldl"], check=True)
    said = subprocess.run([root.at("/open"), root.at("/opt/fast.so")], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == finding.predicted_error
