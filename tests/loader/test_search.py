"""Every rule of ld.so's search on files built for it, beside what the real ld.so of the same root says."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import msgspec
import pytest

from imgcheck.loader.dependencies import dependencies
from imgcheck.loader.model import Loader, close
from imgcheck.loader.roots import find_roots
from tests.loader.builder import INTERPRETER, Root
from tests.loader.parity import compare
from tests.loader.walk import profile_of
from tests.tools import need

_HWCAP_X86_AVX512_1 = 1 << 2
"""sysdeps/x86/dl-hwcap.h of glibc."""


@pytest.fixture
def root(tmp_path: Path) -> Root:
    need("gcc")
    return Root(tmp_path / "root")


def chosen(root: Root, program: str, *environment: str) -> dict[str, str]:
    """Soname to path for everything that `program` and its libraries ask for; "" where nothing is found.

    The real loader of the root, in a chroot, must agree.
    """
    image = profile_of(root.path, environment)
    image = msgspec.structs.replace(image, config=msgspec.structs.replace(image.config, command=(program,)))
    parity = compare(root.path, image, environment, levels=cpu_levels())
    assert not parity.differences
    assert parity.agreed
    closure = close(image, find_roots(image), levels=cpu_levels())
    found = {name: path for (_, name), path in closure.chosen.items()}
    return found | {p.needed: "" for p in closure.problems if p.kind == "library" and p.root == program}


def cpu_levels() -> tuple[str, ...]:
    """The glibc-hwcaps directories that this CPU opens, and those of the older search, as the real loader says."""
    text = subprocess.run([INTERPRETER, "--help"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in text.partition("glibc-hwcaps")[2].splitlines()]
    levels = [words[0] for words in lines if len(words) > 1 and words[0].startswith("x86-64-v") and "(supp" in words[1]]
    told = subprocess.run([INTERPRETER, "--list-diagnostics"], capture_output=True, text=True, check=True).stdout
    capabilities = int(re.search(r"^dl_hwcap=(0x\w+)", told, re.MULTILINE)[1], 16)
    legacy = {"haswell": 'dl_platform="haswell"' in told, "avx512_1": capabilities & _HWCAP_X86_AVX512_1}
    return (*levels, *(name for name, there in legacy.items() if there))


def test_rpath_of_a_program_serves_the_libraries_of_its_libraries(root: Root) -> None:
    root.library("/opt/deep/libinner.so")
    root.library("/opt/a/libouter.so", ["/opt/deep/libinner.so"])
    root.program("/bin/app", ["/opt/a/libouter.so"], ["-Wl,--disable-new-dtags,-rpath,/opt/a:/opt/deep"])
    found = chosen(root, "/bin/app")
    assert found["libouter.so"] == "/opt/a/libouter.so"
    assert found["libinner.so"] == "/opt/deep/libinner.so"


def test_runpath_of_a_program_does_not(root: Root) -> None:
    root.library("/opt/deep/libinner.so")
    root.library("/opt/a/libouter.so", ["/opt/deep/libinner.so"])
    root.program("/bin/app", ["/opt/a/libouter.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/a:/opt/deep"])
    found = chosen(root, "/bin/app")
    assert found["libouter.so"] == "/opt/a/libouter.so"
    assert found["libinner.so"] == ""


def test_a_library_with_runpath_ignores_the_rpath_of_those_who_load_it(root: Root) -> None:
    root.library("/opt/deep/libinner.so")
    runpath = ["-Wl,--enable-new-dtags,-rpath,/nowhere"]
    root.library("/opt/a/libouter.so", ["/opt/deep/libinner.so"], runpath)
    root.program("/bin/app", ["/opt/a/libouter.so"], ["-Wl,--disable-new-dtags,-rpath,/opt/a:/opt/deep"])
    assert chosen(root, "/bin/app")["libinner.so"] == ""


def test_rpath_beats_the_library_path_and_runpath_does_not(root: Root) -> None:
    for place in ("/opt/own", "/opt/env"):
        root.library(f"{place}/libx.so")
    root.program("/bin/rpath", ["/opt/own/libx.so"], ["-Wl,--disable-new-dtags,-rpath,/opt/own"])
    root.program("/bin/runpath", ["/opt/own/libx.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/own"])
    variable = "LD_LIBRARY_PATH=/opt/env"
    image = profile_of(root.path, (variable,))
    assert not compare(root.path, image, (variable,)).differences
    found = close(image).chosen
    assert found["/bin/rpath", "libx.so"] == "/opt/own/libx.so"
    assert found["/bin/runpath", "libx.so"] == "/opt/env/libx.so"


def test_origin_is_where_the_library_was_found_not_where_its_link_leads(root: Root) -> None:
    origin = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
    root.library("/opt/real/libinner.so")
    root.library("/opt/links/libinner.so")
    root.library("/opt/real/libouter.so", ["/opt/real/libinner.so"], origin)
    root.link("/opt/links/libouter.so", "../real/libouter.so")
    root.program("/bin/app", ["/opt/real/libouter.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/links"])
    assert chosen(root, "/bin/app")["libinner.so"] == "/opt/links/libinner.so"


def test_lib_and_platform_tokens(root: Root) -> None:
    root.library("/opt/lib/x86_64-linux-gnu/libone.so")
    for platform in ("x86_64", "haswell"):
        root.library(f"/opt/{platform}/libtwo.so")
    tokens = ["-Wl,--enable-new-dtags,-rpath,/opt/$LIB:/opt/${PLATFORM}"]
    root.program("/bin/app", ["/opt/lib/x86_64-linux-gnu/libone.so", "/opt/x86_64/libtwo.so"], tokens)
    found = chosen(root, "/bin/app")
    assert found["libone.so"] and found["libtwo.so"]


def test_what_ldconfig_has_not_seen_is_not_found(root: Root) -> None:
    root.write("/etc/ld.so.conf", "/opt/cached\n")
    root.library("/opt/cached/libseen.so")
    root.ldconfig()
    root.write("/etc/ld.so.conf", "/opt/cached\n/opt/later\n")
    root.library("/opt/later/liblater.so")
    root.program("/bin/app", ["/opt/cached/libseen.so", "/opt/later/liblater.so"])
    found = chosen(root, "/bin/app")
    assert found["libseen.so"] == "/opt/cached/libseen.so"
    assert found["liblater.so"] == ""


def test_a_stale_cache_entry_falls_through_to_the_default_directories(root: Root) -> None:
    root.write("/etc/ld.so.conf", "/opt/cached\n")
    root.library("/opt/cached/libmoved.so")
    root.program("/bin/app", ["/opt/cached/libmoved.so"])
    root.ldconfig()
    shutil.move(root.at("/opt/cached/libmoved.so"), root.at("/lib/x86_64-linux-gnu/libmoved.so"))
    assert chosen(root, "/bin/app")["libmoved.so"] == "/lib/x86_64-linux-gnu/libmoved.so"


def test_the_cache_beats_the_default_directories(root: Root) -> None:
    root.write("/etc/ld.so.conf", "/opt/cached\n")
    root.library("/opt/cached/libx.so")
    root.library("/usr/lib/libx.so")
    root.program("/bin/app", ["/opt/cached/libx.so"])
    root.ldconfig()
    assert chosen(root, "/bin/app")["libx.so"] == "/opt/cached/libx.so"


def test_nodefaultlib_closes_default_directories_and_what_the_cache_names_there(root: Root) -> None:
    root.library("/usr/lib/libx.so")
    root.program("/bin/app", ["/usr/lib/libx.so"], ["-Wl,-z,nodefaultlib"])
    root.ldconfig()
    assert chosen(root, "/bin/app")["libx.so"] == ""


@pytest.mark.parametrize("cached", [False, True])
def test_hwcaps_directories_are_taken_by_a_cpu_that_has_the_level_alone(root: Root, cached: bool) -> None:
    levels = cpu_levels()
    root.write("/etc/ld.so.conf", "/opt/lib\n")
    root.library("/opt/lib/libx.so")
    root.library("/opt/lib/glibc-hwcaps/x86-64-v2/libx.so")
    path = ["-Wl,--enable-new-dtags,-rpath,/opt/lib"] if not cached else []
    root.program("/bin/app", ["/opt/lib/libx.so"], path)
    root.ldconfig()
    expected = "/opt/lib/glibc-hwcaps/x86-64-v2/libx.so" if "x86-64-v2" in levels else "/opt/lib/libx.so"
    assert chosen(root, "/bin/app")["libx.so"] == expected
    assert close(profile_of(root.path), levels=()).chosen["/bin/app", "libx.so"] == "/opt/lib/libx.so"


def test_a_library_of_another_machine_is_passed_over(root: Root) -> None:
    need("aarch64-linux-gnu-gcc")
    root.library("/opt/arm/libx.so", compiler="aarch64-linux-gnu-gcc")
    root.library("/opt/own/libx.so")
    root.program("/bin/app", ["/opt/own/libx.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/arm:/opt/own"])
    assert chosen(root, "/bin/app")["libx.so"] == "/opt/own/libx.so"


def test_a_library_of_another_machine_alone_is_a_missing_one_that_names_it(root: Root) -> None:
    need("aarch64-linux-gnu-gcc")
    root.library("/opt/arm/libx.so", compiler="aarch64-linux-gnu-gcc")
    root.library("/tmp/libx.so")
    root.program("/bin/app", ["/tmp/libx.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/arm"])
    root.at("/tmp/libx.so").unlink()
    (problem,) = close(profile_of(root.path)).problems
    assert (problem.needed, problem.skipped) == ("libx.so", ("/opt/arm/libx.so",))


def test_a_loaded_soname_is_not_sought_again(root: Root) -> None:
    root.library("/opt/first/libx.so")
    root.library("/opt/second/libx.so")
    second = ["-Wl,--disable-new-dtags,-rpath,/opt/second"]
    root.library("/opt/first/liby.so", ["/opt/second/libx.so"], second)
    first = ["-Wl,--disable-new-dtags,-rpath,/opt/first"]
    root.program("/bin/app", ["/opt/first/libx.so", "/opt/first/liby.so"], first)
    assert chosen(root, "/bin/app")["libx.so"] == "/opt/first/libx.so"


def test_two_names_of_one_file_are_one_object(root: Root) -> None:
    root.library("/opt/libx.so", soname="")
    root.link("/opt/liby.so", "libx.so")
    names = [f"-L{root.at('/opt')}", "-Wl,--no-as-needed", "-l:libx.so", "-l:liby.so", "-Wl,-rpath,/opt"]
    root.program("/bin/app", ["/lib/x86_64-linux-gnu/libc.so.6"], names)
    image = profile_of(root.path)
    assert not compare(root.path, image).differences
    closure = close(image)
    assert closure.chosen["/bin/app", "liby.so"] == "/opt/libx.so"
    assert closure.loaded["/bin/app"].count("/opt/libx.so") == 1


def test_a_name_with_a_slash_is_opened_as_it_stands(root: Root) -> None:
    root.library("/opt/libx.so", soname="/opt/libx.so")
    root.program("/bin/app", ["/opt/libx.so"])
    assert chosen(root, "/bin/app")["/opt/libx.so"] == "/opt/libx.so"


def test_auxiliary_libraries_are_optional_and_filtees_are_not(root: Root) -> None:
    root.library("/usr/lib/libaux.so", flags=["-Wl,-f,libnothere.so"])
    root.library("/usr/lib/libfil.so", flags=["-Wl,-F,libnowhere.so"])
    root.program("/bin/auxiliary", ["/usr/lib/libaux.so"])
    root.program("/bin/filter", ["/usr/lib/libfil.so"])
    problems = close(profile_of(root.path)).problems
    assert {(problem.root, problem.needed) for problem in problems} == {("/bin/filter", "libnowhere.so")}


def test_preloaded_libraries_come_first_and_may_be_missing(root: Root) -> None:
    root.library("/opt/one/libx.so")
    root.library("/opt/two/libx.so")
    root.program("/bin/app", ["/opt/two/libx.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/two"])
    environment = ("LD_PRELOAD=/opt/one/libx.so /opt/none.so",)
    image = profile_of(root.path, environment)
    closure = close(image)
    assert closure.chosen["/bin/app", "libx.so"] == "/opt/one/libx.so"
    assert not closure.problems


def test_a_missing_symbol_version_names_both_files(root: Root) -> None:
    root.library("/opt/new/libx.so.1", versions=["X_1", "X_2"])
    root.program("/bin/app", ["/opt/new/libx.so.1"], ["-Wl,--enable-new-dtags,-rpath,/opt/old"], CALLS_X)
    root.library("/opt/old/libx.so.1", versions=["X_1"])
    image = profile_of(root.path)
    assert not compare(root.path, image).differences
    (problem,) = close(image).problems
    assert (problem.kind, problem.path, problem.version) == ("version", "/bin/app", "X_2")
    assert problem.provider == "/opt/old/libx.so.1"


def test_a_library_without_versions_is_only_warned_about(root: Root) -> None:
    root.library("/opt/new/libx.so.1", versions=["X_1", "X_2"])
    root.program("/bin/app", ["/opt/new/libx.so.1"], ["-Wl,--enable-new-dtags,-rpath,/opt/old"], CALLS_X)
    root.library("/opt/old/libx.so.1")
    image = profile_of(root.path)
    assert not compare(root.path, image).differences
    assert not close(image).problems


CALLS_X = "void f_libx_so_1(void); int main(void){f_libx_so_1(); return 0;}"


def test_a_missing_interpreter_is_one_problem_and_the_only_one(root: Root) -> None:
    root.program("/bin/app", flags=["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"])
    (problem,) = close(profile_of(root.path)).problems
    assert (problem.kind, problem.needed) == ("interpreter", "/lib/ld-musl-x86_64.so.1")


def test_links_in_a_circle_end_the_search_and_not_the_tool(root: Root) -> None:
    root.link("/opt/loop", "loop2")
    root.link("/opt/loop2", "loop")
    root.library("/usr/lib/libx.so")
    root.program("/bin/app", ["/usr/lib/libx.so"], ["-Wl,--enable-new-dtags,-rpath,/opt/loop"])
    assert chosen(root, "/bin/app")["libx.so"] == "/usr/lib/libx.so"


@pytest.mark.parametrize("rpath", ["/srv/lonely/door", "/srv/lonely/../../opt/deep", "/srv/lonely/door/../deep/."])
def test_the_way_to_a_library_may_lead_through_directories_without_any(root: Root, rpath: str) -> None:
    root.library("/opt/deep/libinner.so")
    root.link("/srv/lonely/door", "/opt/deep")
    root.program("/bin/app", ["/opt/deep/libinner.so"], [f"-Wl,--disable-new-dtags,-rpath,{rpath}"])
    assert chosen(root, "/bin/app")["libinner.so"] == "/opt/deep/libinner.so"


def test_a_plugin_is_judged_with_the_rpath_of_the_library_that_loads_it(root: Root) -> None:
    root.library("/opt/in/libinner.so")
    root.library("/opt/a/libmiddle.so", ["/opt/in/libinner.so"])
    rpath = ["-Wl,--disable-new-dtags,-rpath,$ORIGIN:$ORIGIN/../in"]
    root.library("/opt/a/plugin.so", ["/opt/a/libmiddle.so"], rpath)
    closure = close(profile_of(root.path))
    assert not closure.problems
    assert closure.chosen["/opt/a/libmiddle.so", "libinner.so"] == "/opt/in/libinner.so"


def test_a_plugin_whose_opener_may_have_loaded_the_library_is_no_problem(root: Root) -> None:
    root.library("/opt/app/libcore.so")
    root.library("/opt/app/plugins/plugin.so", ["/opt/app/libcore.so"])
    closure = close(profile_of(root.path))
    assert not closure.problems
    assert [problem.needed for problem in closure.contextual] == ["libcore.so"]


def test_a_loader_keeps_what_no_runtime_changes(root: Root) -> None:
    root.program("/bin/app")
    loader = Loader(profile_of(root.path))
    assert loader.close() is loader.close()


def test_a_dependency_tree_gives_the_reason_for_each_choice(root: Root) -> None:
    root.library("/opt/deep/libinner.so")
    root.library("/opt/a/libouter.so", ["/opt/deep/libinner.so"])
    root.library("/usr/lib/libplain.so")
    libraries = ["/opt/a/libouter.so", "/usr/lib/libplain.so"]
    root.program("/bin/app", libraries, ["-Wl,--enable-new-dtags,-rpath,/opt/a"])
    found = [(d.depth, d.name, d.reason) for d in dependencies(profile_of(root.path), "/bin/app")]
    assert found == [
        (1, "libouter.so", "RUNPATH"),
        (2, "libinner.so", "not found"),
        (1, "libplain.so", "default directory"),
        (1, "libc.so.6", "default directory"),
        (2, "ld-linux-x86-64.so.2", "interpreter"),
    ]


def test_a_search_path_as_long_as_package_managers_write_it(root: Root) -> None:
    paths = [
        f"/opt/spack/linux-debian12-x86_64_v3/gcc-12.2.0/package-{number:03}-abcdefgh012345/lib" for number in range(80)
    ]
    root.library(f"{paths[-1]}/libfoo.so.1")
    root.program("/bin/app", [f"{paths[-1]}/libfoo.so.1"], [f"-Wl,-rpath,{':'.join(paths)}"])
    assert len(":".join(paths)) > 4096
    assert chosen(root, "/bin/app")["libfoo.so.1"] == f"{paths[-1]}/libfoo.so.1"


def test_an_empty_runpath_leaves_out_rpath_too(root: Root) -> None:
    root.library("/opt/a/libfoo.so")
    root.program("/bin/app", ["/opt/a/libfoo.so"], ["-Wl,--disable-new-dtags,-rpath,/opt/a"])
    data = root.at("/bin/app").read_bytes()
    debug, empty = struct.pack("<QQ", 21, 0), struct.pack("<QQ", 29, 0)  # DT_DEBUG, DT_RUNPATH of ""
    assert chosen(root, "/bin/app")["libfoo.so"] == "/opt/a/libfoo.so"
    assert data.count(debug) == 1
    root.at("/bin/app").write_bytes(data.replace(debug, empty))
    assert chosen(root, "/bin/app")["libfoo.so"] == ""


def test_a_token_in_a_name_without_slash_is_sought_like_any_name(root: Root) -> None:
    root.library("/opt/a/libfoo-$PLATFORM.so.1")
    root.program("/bin/app", ["/opt/a/libfoo-$PLATFORM.so.1"], ["-Wl,-rpath,/opt/a"])
    for platform in ("x86_64", "haswell"):
        root.link(f"/opt/a/libfoo-{platform}.so.1", "libfoo-$PLATFORM.so.1")
    found = chosen(root, "/bin/app")
    assert found["libfoo-$PLATFORM.so.1"] == "/opt/a/libfoo-$PLATFORM.so.1"


def test_the_c_library_of_a_sysroot_that_nothing_enters_is_not_the_images(root: Root) -> None:
    root.program("/bin/app")
    root.library("/opt/conda/sysroot/lib64/libc-2.12.so", soname="libc.so.6")
    image = profile_of(root.path)
    for command in ((), ("/bin/app",)):
        image = msgspec.structs.replace(image, config=msgspec.structs.replace(image.config, command=command))
        assert {Path(path).name for path in close(image).libcs} == {
            Path("/lib/x86_64-linux-gnu/libc.so.6").resolve().name
        }
    alone = msgspec.structs.replace(image, files=tuple(each for each in image.files if "sysroot" in each.path))
    assert close(alone).libcs == {"/opt/conda/sysroot/lib64/libc-2.12.so"}


@pytest.mark.parametrize("options", [(), ("--library-path", "/opt/ld")])
def test_a_loader_that_is_named_takes_the_place_of_the_programs_own(root: Root, options: tuple[str, ...]) -> None:
    """As bundles that bring their own C library do; where it looks is its own affair."""
    root.program("/bin/app")
    root.at("/opt").mkdir()
    shutil.move(root.at(INTERPRETER), root.at("/opt/ld-linux-x86-64.so.2"))
    image = profile_of(root.path, command=("/opt/ld-linux-x86-64.so.2", *options, "/bin/app"))
    assert "/bin/app" not in {problem.path for problem in close(image).problems}
    by_kernel = msgspec.structs.replace(image, config=msgspec.structs.replace(image.config, command=("/bin/app",)))
    assert "/bin/app" in {problem.path for problem in close(by_kernel).problems if problem.kind == "interpreter"}
