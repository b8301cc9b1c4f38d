"""From layers to a profile: what is recorded, what is not, and what a damaged file costs."""

import hashlib
import io
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from imgcheck.documents import decode, encode
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import ImageConfig, ImageProfile, LayerInfo, Platform, Script
from imgcheck.documents.shell_commands import ShellCommand, packed
from imgcheck.errors import DigestError
from imgcheck.layers.stream import TarLayer
from imgcheck.loader.shell_words import UNKNOWN
from imgcheck.profile.build import build_profile
from imgcheck.profile.worker import Engines, Memory, Worker
from imgcheck.progress import SILENT
from imgcheck.sources.model import Image
from tests.gpu_files import container, entry
from tests.layers.layouts import Member, archive, digest_of, directory, file, hardlink, symlink
from tests.layers.test_tar import END, extended, header, record
from tests.tools import compile_c


@pytest.fixture(scope="module")
def program() -> bytes:
    return compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()


@pytest.fixture(scope="module")
def library() -> bytes:
    return compile_c(
        "int f(int x) { return x + 1; }", "-shared", "-fPIC", "-Wl,-soname,libf.so.1", out="libf.so.1"
    ).read_bytes()


def profile_of(*layers: Iterable[Member] | bytes, config: ImageConfig | None = None) -> ImageProfile:
    blobs = [layer if isinstance(layer, bytes) else archive(layer) for layer in layers]
    tars = tuple(TarLayer(LayerInfo(diff_id=digest_of(blob)), lambda blob=blob: io.BytesIO(blob)) for blob in blobs)
    return build_profile(Image("test", Platform(), config or ImageConfig(), tars), SILENT)


def test_files_with_code_are_recorded_with_layer_and_facts(program: bytes, library: bytes) -> None:
    profile = profile_of(
        [file("usr/bin/p", program, mode=0o755), file("notes", "no code")], [file("usr/lib/libf.so.1", library)]
    )
    assert [(r.path, r.layer, r.executable) for r in profile.files] == [
        ("/usr/bin/p", 0, True),
        ("/usr/lib/libf.so.1", 1, False),
    ]
    assert profile.facts(profile.files[1]).linkage.soname == "libf.so.1"
    assert set(profile.engines) == {"gpu", "isa", "linkage", "profile"}


def test_what_is_named_as_a_library_and_is_none_is_recorded_with_its_links(library: bytes) -> None:
    members = [
        file("usr/lib/libempty.so.1.0", b""),
        symlink("usr/lib/libempty.so.1", "libempty.so.1.0"),
        file("usr/lib/libscript.so", "INPUT(libscript.so.1) " * 9),
        file("usr/lib/libf.so.1", library),
        file("etc/ld.so.conf", b""),
        file("usr/lib/empty", b""),
        file("usr/lib/libgone.so", b""),
    ]
    profile = profile_of(members, [file("usr/lib/libgone.so", library)])
    assert profile.tree.unloadable == {
        "/usr/lib/libempty.so.1.0": "file too short",
        "/usr/lib/libscript.so": "invalid ELF header",
    }
    assert profile.tree.symlinks == {"/usr/lib/libempty.so.1": "libempty.so.1.0"}


def test_deleted_and_overwritten_files_do_not_appear(program: bytes, library: bytes) -> None:
    lower = [file("gone", program), file("replaced", program), file("kept", library)]
    profile = profile_of(lower, [file(".wh.gone"), file("replaced", "text now")])
    assert [record.path for record in profile.files] == ["/kept"]
    assert len(profile.objects) == 1


def test_equal_files_are_one_object_and_hardlinks_are_two_paths(program: bytes) -> None:
    profile = profile_of([file("a", program), file("b", program), hardlink("c", "a")])
    assert [record.path for record in profile.files] == ["/a", "/b", "/c"]
    assert len(profile.objects) == 1


def test_the_key_of_a_file_is_the_digest_of_its_bytes(program: bytes) -> None:
    contents = [program, program + bytes(2 << 20)]
    profile = profile_of([file("a", contents[0]), file("b", contents[1])])
    assert [record.object for record in profile.files] == [hashlib.sha256(data).hexdigest() for data in contents]


def test_packed_gpu_code_that_nobody_reads_does_not_tell_files_apart_and_all_else_does(program: bytes) -> None:
    def with_gpu_code(seed: int, front: int = 0, between: bytes = bytes(8)) -> bytes:
        packed = random.Random(seed).randbytes(3 << 20)
        fatbin = container(entry(2, 70, b"cubin" * 1000 + packed), entry(2, 80, b"cubin" * 1000 + packed))
        return program + bytes(-len(program) % 8 + front) + fatbin + between + fatbin

    variants = [with_gpu_code(1), with_gpu_code(2), with_gpu_code(1, 8), with_gpu_code(1, 0, b"12345678")]
    shifts = [file(f"s{n}", "x" * 1000 * n) for n in range(4)]
    files = [file(f"v{n}", variant) for n, variant in enumerate([*variants, variants[0]])]
    profile = profile_of([member for pair in zip(files, [*shifts, shifts[0]], strict=True) for member in pair])
    same, packed, front, between, again = (record.object for record in profile.files)
    assert same == packed == again
    assert {same, front, between} == profile.objects.keys() and len(profile.objects) == 3


def test_damaged_elf_is_unreadable_and_the_rest_goes_on(program: bytes) -> None:
    absurd = b"\x7fELF\x07\x09" + program[6:]
    profile = profile_of(
        [file("cut", program[: len(program) // 4]), file("head", b"\x7fELF\x02"), file("absurd", absurd),
         file("whole", program)]
    )  # fmt: skip
    assert set(profile.unreadable) == {"/cut", "/head", "/absurd"}
    assert "truncated" in profile.unreadable["/cut"]
    assert "truncated" in profile.unreadable["/head"]
    assert "absurd" in profile.unreadable["/absurd"]
    assert not profile.facts(next(r for r in profile.files if r.path == "/whole")).error


def test_program_too_large_for_memory_is_unreadable_and_costs_nothing() -> None:
    sparse = extended(record("GNU.sparse.size", str(1 << 40)) + record("GNU.sparse.map", "0,8"))
    blob = sparse + header(name=b"bomb", size=b"10") + b"\x7fELF\x02\x01\x01\0".ljust(512, b"\0") + END
    assert "too large" in profile_of(blob).unreadable["/bomb"]


def test_only_links_that_lead_to_code_are_kept(program: bytes) -> None:
    profile = profile_of(
        [directory("usr/lib"), symlink("lib", "usr/lib"), file("usr/lib/p.1", program), symlink("usr/lib/p", "p.1"),
         symlink("chain", "/lib/p"), file("doc", "d"), symlink("doc.link", "doc"), symlink("dangling", "nowhere"),
         symlink("etc/passwd", "../run/none"), directory("empty"), symlink("to-empty", "empty")]
    )  # fmt: skip
    assert profile.tree.symlinks == {
        "/chain": "/lib/p",
        "/lib": "usr/lib",
        "/usr/lib/p": "p.1",
        "/etc/passwd": "../run/none",  # dangling, at a place where runtimes bind
    }


def test_scripts_and_what_they_run() -> None:
    wrapper = "#!/bin/sh\nset -e\nif [ -x /a ]; then exec /opt/tool --flag; fi\nexec gosu app server\n"
    profile = profile_of(
        [file("w", wrapper, mode=0o755), file("e", '#!/usr/bin/env bash\nexec "$@"\n', mode=0o755),
         file("py", "#!/usr/bin/env -S python3 -u\nexec rm\n", mode=0o755), file("read-by-sh", "#!/bin/sh\nx\n"),
         file("plain.sh", "server\n"), file("plain.txt", "server\n"), symlink("run", "w"),
         file("etc/default/tool", "TOOL=server\n"), file("etc/motd", "TOOL=server\n")]
    )  # fmt: skip
    found = {script.path: script for script in profile.tree.scripts}
    assert found == {
        "/w": Script(
            "/w",
            ("/bin/sh",),
            packed(
                [
                    ShellCommand(("set", "-e")),
                    ShellCommand(("if", "[", "-x", "/a", "]"), decides=1),
                    ShellCommand(("exec", "/opt/tool", "--flag"), when=(1,)),
                    ShellCommand(("exec", "gosu", "app", "server")),
                ]
            ),
        ),
        "/e": Script("/e", ("/usr/bin/env", "bash"), packed([ShellCommand(("exec", "${@}"))])),
        "/py": Script("/py", ("/usr/bin/env", "-S python3 -u"), ""),
        "/read-by-sh": Script("/read-by-sh", ("/bin/sh",), packed([ShellCommand(("x",))]), executable=False),
        "/plain.sh": Script("/plain.sh", (), packed([ShellCommand(("server",))]), executable=False),
        "/etc/default/tool": Script(
            "/etc/default/tool", (), packed([ShellCommand(("TOOL=server",))]), executable=False
        ),
    }
    assert profile.tree.symlinks == {"/run": "w"}


def test_modules_of_python_are_no_scripts_unless_they_may_be_executed() -> None:
    name = "usr/lib/python3/dist-packages/pkg/"
    profile = profile_of(
        [file(f"{name}a.py", "#!/usr/bin/python3\n"), file(f"{name}b.py", "#!/usr/bin/python3\n", mode=0o755)]
    )
    assert [script.path for script in profile.tree.scripts] == [f"/{name}b.py"]


def test_files_that_the_command_names_are_known_to_be_there() -> None:
    config = ImageConfig(entrypoint=("./start", "data"), command=("/opt/gone", "app.py"), working_directory="/opt")
    # Of a file like others before it a layer's reader keeps the name alone.
    for members in ([], [file("opt/another", "begins", mode=0o755)]):
        named = [file("opt/start", "server\n", mode=0o755), file("opt/app.py", "import os\n"), directory("opt/data")]
        profile = profile_of([*members, *named], config=config)
        assert {"/opt/start", "/opt/app.py"} <= {*profile.tree.files}
        assert {"/opt/gone", "/opt/data"}.isdisjoint(profile.tree.files)


def test_what_lies_in_path_is_known_whatever_it_holds(program: bytes) -> None:
    config = ImageConfig(environment=("PATH=/usr/local/bin:/opt/bin",))
    members = [
        directory("usr/local/bin"), directory("srv"), symlink("opt/bin", "/srv"), file("srv/p", program, mode=0o755),
        file("usr/local/bin/bare", "echo\n", mode=0o755), file("usr/local/bin/bytes", b"MZ\0\0", mode=0o755),
        file("usr/local/bin/run", "#!/bin/sh\n", mode=0o755), symlink("usr/local/bin/linked", "../../../srv/text"),
        file("srv/text", "text\n", mode=0o755), symlink("usr/local/bin/gone", "/gpfs/gone"), symlink("opt/gone", "/x"),
    ]  # fmt: skip
    tree = profile_of(members, config=config).tree
    assert tree.files == ("/srv/text", "/usr/local/bin/bare", "/usr/local/bin/bytes")
    assert tree.symlinks == {
        "/opt/bin": "/srv", "/usr/local/bin/linked": "../../../srv/text", "/usr/local/bin/gone": "/gpfs/gone",
    }  # fmt: skip


def test_of_very_many_files_in_path_that_of_the_command_is_known() -> None:
    members = [file(f"usr/local/bin/data{number}", "x") for number in range(3000)]
    files = profile_of(members, config=ImageConfig(command=("data2999",))).tree.files
    assert "/usr/local/bin/data2999" in files
    assert len(files) < 1200


def test_what_others_may_not_use_is_known(program: bytes, library: bytes) -> None:
    members = [
        directory("root", mode=0o700), directory("root/bin"), file("root/bin/p", program, mode=0o755),
        directory("srv", mode=0o750), file("srv/notes", "text"), directory("opt", mode=0o711),
        file("opt/p", program, mode=0o711), file("opt/own", program, mode=0o700),
        file("opt/run", "#!/bin/sh\n", mode=0o750), file("opt/libf.so.1", library, mode=0o640),
    ]  # fmt: skip
    assert profile_of(members).tree.closed == ("/opt/libf.so.1", "/opt/own", "/opt/run", "/root")


def test_a_script_that_is_not_read_to_its_end_is_told_from_a_short_one() -> None:
    profile = profile_of([file("long.sh", "#!/bin/sh\nserver\n" + "# notes\n" * 10_000, mode=0o755)])
    [script] = profile.tree.scripts
    assert script.commands == (ShellCommand(("server",)), ShellCommand((UNKNOWN,), conditional=True))


def test_a_text_that_cannot_be_read_for_a_defect_of_ours_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("a defect")

    for reader in ("read_commands", "of_application"):
        monkeypatch.setattr(f"imgcheck.profile.texts.{reader}", broken)
    scripts = {"run": "#!/bin/sh -e\nexec app\n", "tool": "#!/usr/bin/perl\n", "app.py": "import numpy\n"}
    profile = profile_of([file(name, text, mode=0o755) for name, text in scripts.items()])
    assert profile.tree.scripts == (
        Script("/run", ("/bin/sh", "-e"), packed([ShellCommand((UNKNOWN,), conditional=True)])),
        Script("/tool", ("/usr/bin/perl",), ""),
    )
    assert [(each.path, each.anything) for each in profile.tree.python_code] == [("/app.py", True)]


def test_loader_configuration_through_links_and_layers() -> None:
    profile = profile_of(
        [file("etc/ld.so.conf", "include ld.so.conf.d/*.conf\n/opt/lib # last\n"),
         file("etc/ld.so.conf.d/b.conf", "/b"), file("etc/ld.so.conf.d/a.conf", "/a"),
         symlink("etc/ld.so.preload", "/opt/preload"), directory("opt")],
        [file("etc/ld.so.conf.d/.wh.b.conf"), file("etc/ld.so.conf.d/c.conf", "/c")],
    )  # fmt: skip
    assert profile.tree.ld_so_conf == ("/a", "/c", "/opt/lib")


def test_places_that_runtimes_ask_for() -> None:
    config = ImageConfig(working_directory="/work/./here/")
    profile = profile_of(
        [directory("usr/lib64"), directory("work/here"), file("etc/passwd", "root"), symlink("bin", "usr/bin"),
         file("usr/bin/sh", "x", mode=0o755), directory("site/python3/site-packages/x")],
        config=config,
    )  # fmt: skip
    assert profile.tree.directories == ("/usr/lib64", "/work/here")
    assert profile.tree.files == ("/etc/passwd", "/usr/bin/sh")
    assert profile.tree.python_paths == ("/site/python3/site-packages",)


def test_distribution_is_read_through_its_link() -> None:
    text = 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
    profile = profile_of([file("usr/lib/os-release", text), symlink("etc/os-release", "../usr/lib/os-release")])
    (found,) = profile.components
    assert "Debian" in found.name
    assert found.version == "12"


def test_names_that_are_no_utf_8_stay_valid_unicode(program: bytes) -> None:
    profile = profile_of([file("caf\udce9", program), symlink("l\udcff", "caf\udce9")])
    assert profile.files[0].path == r"/caf\xe9"
    assert profile.tree.symlinks == {r"/l\xff": r"caf\xe9"}
    assert decode(encode(profile), ImageProfile, "it") == profile


def test_wrong_diff_id_leaves_no_profile(program: bytes) -> None:
    layer = TarLayer(LayerInfo(diff_id="sha256:" + "1" * 64), lambda: io.BytesIO(archive([file("p", program)])))
    with pytest.raises(DigestError):
        build_profile(Image("test", Platform(), ImageConfig(), (layer,)), SILENT)


def test_profile_is_the_same_every_time(program: bytes, library: bytes) -> None:
    layers = [[file(f"f{i}", program + bytes(i)) for i in range(20)], [file("l", library)]]
    assert encode(profile_of(*layers)) == encode(profile_of(*layers))


def test_thousands_of_small_programs_need_few_descriptors(program: bytes) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (160, hard))
    try:
        profile = profile_of([file(f"f{i}", b"\x7fELF" + i.to_bytes(4, "little")) for i in range(3000)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(profile.unreadable) == len(profile.files) == 3000
    assert all("truncated" in why or "absurd" in why for why in profile.unreadable.values())


def test_largest_layer_is_read_first_and_the_tree_is_the_same(program: bytes, library: bytes) -> None:
    layers = [
        [file("bin/a", program), file("bin/gone", program + b"gone"), file("lib/plain", b"\xff")],
        [file("bin/.wh.gone"), file("bin/b", library + bytes(1 << 16)), directory("lib/plain")],
        [symlink("usr", "bin"), file("usr/a", program + b"new"), file("lib/plain/x", b"\xff"), file("b.txt", b"\xff")],
    ]
    opened: list[int] = []

    def layer(index: int) -> TarLayer:
        blob = archive(layers[index])

        def opener() -> io.BytesIO:
            opened.append(index)
            return io.BytesIO(blob)

        return TarLayer(LayerInfo(diff_id=digest_of(blob), size=len(blob)), opener)

    tars = tuple(map(layer, range(3)))
    expected: list[int] = []
    image = Image("test", Platform(), ImageConfig(), tars, expect=expected.extend)
    profile = build_profile(image, SILENT)
    assert opened == expected == [1, 0, 2]
    assert [(record.path, record.layer) for record in profile.files] == [("/bin/a", 2), ("/bin/b", 1)]
    assert profile.objects[profile.files[0].object].size == len(program) + 3


def test_file_larger_than_all_that_may_wait_is_read(program: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imgcheck.profile.analysis._WAITING_LIMIT", 1000)
    monkeypatch.setattr("imgcheck.profile.analysis._SMALL", 2000)
    files = [file(f"bin/{n}", program + bytes(n)) for n in range(1, 20)]
    profile = profile_of(files)
    assert len(profile.objects) == len(files)
    assert not profile.unreadable


@pytest.fixture
def engines() -> Iterator[Engines]:
    engines = Engines()
    yield engines
    engines.stop()


def facts_of(worker: Worker, *files: bytes) -> list[CodeFacts | None]:
    with closing(Memory.of(files)) as memory:
        return list(worker.analyse(memory))


def test_worker_answers_again_and_again(engines: Engines, program: bytes) -> None:
    worker = engines.fork()
    for data in (program, b"no code", program):
        (facts,) = facts_of(worker, data)
        assert (facts.linkage.machine if facts else None) == ("x86_64" if data == program else None)


def test_files_that_share_a_memory_are_told_apart(engines: Engines, program: bytes, library: bytes) -> None:
    files = (library, b"no code", program, library)
    each = [facts_of(engines.fork(), data)[0] for data in files]
    assert facts_of(engines.fork(), *files) == each
    assert [facts.linkage.soname if facts else None for facts in each] == ["libf.so.1", None, "", "libf.so.1"]


def test_crash_of_a_worker_is_the_error_of_its_file_alone(engines: Engines, program: bytes) -> None:
    worker, other = engines.fork(), engines.fork()
    os.kill(worker._process, signal.SIGSEGV)
    (facts,) = facts_of(worker, program, program)
    assert "crashed (exit status -11)" in facts.error
    assert not worker.alive
    assert facts_of(other, program)[0].linkage
    assert facts_of(engines.fork(), program)[0].linkage


def test_interrupt_is_left_to_the_parent(engines: Engines, program: bytes) -> None:
    worker = engines.fork()
    for process in (worker._process, engines._process.pid):
        os.kill(process, signal.SIGINT)
    assert facts_of(worker, program)[0].linkage
    assert facts_of(engines.fork(), program)[0].linkage


def runs(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def test_settings_of_the_users_python_have_no_part_in_the_engines(program: bytes, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/no/such/place")
    engines = Engines()
    assert facts_of(engines.fork(), program)[0].linkage
    engines.stop()


def test_engines_are_killed_with_the_group_of_their_parent() -> None:
    code = "from imgcheck.profile.worker import Engines; w = Engines().fork(); print(w._process, flush=True); input()"
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    worker = int(parent.stdout.readline())
    assert runs(worker)
    os.killpg(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while runs(worker) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not runs(worker)


def test_all_workers_end_with_the_engines(program: bytes) -> None:
    engines = Engines()
    worker = engines.fork()
    engines.stop()
    (facts,) = facts_of(worker, program)
    assert "crashed" in facts.error
    with pytest.raises(OSError):
        engines.fork()


def test_worker_imports_nothing_from_where_the_user_stands(
    program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(tmp_path)
    engines = Engines()
    assert not facts_of(engines.fork(), program)[0].error
    engines.stop()
