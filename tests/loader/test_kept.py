"""The loader's work that a profile brings: a check with it says what a check without it says, on every host."""

import msgspec
import pytest
from hypothesis import given, settings

from imgcheck.check.run import Request, check
from imgcheck.documents import ImageProfile, decode, encode
from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.host import HostLibrary, HostProfile, known
from imgcheck.documents.image import FileRecord, ImageConfig, Platform, TreeIndex, Unstartable
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from imgcheck.loader import code
from imgcheck.loader.closures import Closures
from imgcheck.loader.hwcaps import KINDS, hwcaps_of
from imgcheck.loader.injection import Injection
from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.model import Loader
from imgcheck.loader.outcomes import unpacked
from imgcheck.loader.roots import find_roots
from tests.end_to_end.command import imgcheck
from tests.loader.random_images import INJECTIONS, images
from tests.tools import CHECKOUT

KNOWLEDGE = Knowledge()
OWN = Request()
INJECTING = tuple(runtime.id for runtime in KNOWLEDGE.runtimes.values() if runtime.injects_driver)


def _hosts() -> list[HostProfile]:
    """Nodes old and new, with a driver and without, and one of which nothing is known."""
    described = [
        describe_host(KNOWLEDGE, cpu="nehalem", gpus=("Tesla K80",), driver="396.44", glibc="2.17", kernel="3.10"),
        describe_host(KNOWLEDGE, cpu="haswell", gpus=("none",), driver="none", glibc="2.31", kernel="4.18"),
        describe_host(KNOWLEDGE, cpu="zen4", gpus=("A100-SXM4-40GB",), driver="535.104.05", kernel="5.14"),
        describe_host(KNOWLEDGE, arch="aarch64"),
        HostProfile("1.0", "unknown"),
    ]
    intel = msgspec.structs.replace(described[1].cpu, model=known("Intel(R) Xeon(R) CPU E5-2680 v3", "/proc/cpuinfo"))
    return [*described, msgspec.structs.replace(described[1], name="intel", cpu=intel)]


HOSTS = _hosts()


def _stored(image: ImageProfile) -> ImageProfile:
    return decode(encode(with_loads(image)), ImageProfile, "test")


def _says(image: ImageProfile, request: Request) -> list[object]:
    return [check(image, (host,), request, KNOWLEDGE, digests=False) for host in HOSTS]


def _image() -> ImageProfile:
    """A program that needs a library, which the image has for newer CPUs alone."""
    linkages = {
        "/bin/app": Linkage(64, "x86_64", type="executable", interpreter="/lib64/ld.so", needed=("liba.so",)),
        "/lib64/glibc-hwcaps/x86-64-v3/liba.so": Linkage(64, "x86_64", soname="liba.so"),
        "/lib64/ld.so": Linkage(64, "x86_64", soname="ld-linux-x86-64.so.2"),
    }
    return ImageProfile(
        schema_version="1.0",
        reference="test",
        platform=Platform(),
        config=ImageConfig(command=("/bin/app",)),
        layers=(),
        files=tuple(FileRecord(path, path, 0, True) for path in linkages),
        objects={path: CodeFacts(1, linkage) for path, linkage in linkages.items()},
        tree=TreeIndex(),
    )


@settings(max_examples=60, deadline=None)
@given(images())
def test_it_is_the_work_that_would_be_done(image: ImageProfile) -> None:
    stored = _stored(image)
    for levels in KINDS:
        kept, closure = kept_work(stored, levels), Loader(image, None, levels).close()
        assert kept is not None
        assert (kept.roots, kept.closure) == (find_roots(image), closure)
        assert list(kept.closure.loaded.items()) == list(closure.loaded.items())


@settings(max_examples=200, deadline=None)
@given(images(), INJECTIONS)
def test_what_an_injection_makes_of_it_is_what_would_be_worked_out(image: ImageProfile, injection: Injection) -> None:
    stored = _stored(image)
    for levels in (KINDS[0], KINDS[-1]):
        kept, anew = kept_work(stored, levels), Loader(image, None, levels)
        assert kept is not None
        outcomes = unpacked(stored, kept.loads)
        assert outcomes is not None
        found, expected = (loader.under(injection) for loader in (Loader(stored, None, levels, outcomes), anew))
        assert found == expected
        assert list(found.loaded.items()) == list(expected.loaded.items())


def test_a_preloaded_library_that_is_injected_is_that_of_the_host() -> None:
    linkages = {
        "/bin/app": Linkage(64, "x86_64", type="executable", interpreter="/lib64/ld.so"),
        "/lib64/liba.so": Linkage(64, "x86_64", soname="liba.so"),
        "/lib64/ld.so": Linkage(64, "x86_64", soname="ld-linux-x86-64.so.2"),
    }
    image = msgspec.structs.replace(
        _image(),
        config=ImageConfig(command=("/bin/app",), environment=("LD_PRELOAD=liba.so",)),
        files=tuple(FileRecord(path, path, 0, True) for path in linkages),
        objects={path: CodeFacts(1, linkage) for path, linkage in linkages.items()},
    )
    library = HostLibrary("/usr/lib64/liba.so", "liba.so", "x86_64")
    injection = Injection("/.libs", (library,), "ld-library-path-first")
    loader = Loader(image)
    assert "/lib64/liba.so" in loader.close().loaded["/bin/app"]
    assert "/.libs/liba.so" in loader.under(injection).loaded["/bin/app"]


@settings(max_examples=15, deadline=None)
@given(images())
def test_a_check_says_the_same_with_it(image: ImageProfile) -> None:
    stored = _stored(image)
    for request in (OWN, Request(command=("/bin/two",)), Request(runtimes=INJECTING)):
        assert _says(stored, request) == _says(image, request)


@pytest.mark.slow
def test_a_check_of_a_real_image_says_the_same_with_it(tmp_path) -> None:
    from tests.end_to_end.real_image import tensorflow_layout

    file = tmp_path / "profile.json"
    assert imgcheck("profile", tensorflow_layout("1.12.0"), "-o", file).returncode == 0
    stored = decode(file.read_bytes(), ImageProfile, "test")
    assert kept_work(stored, ()) is not None
    for request in (OWN, Request(runtimes=INJECTING)):
        assert _says(stored, request) == _says(msgspec.structs.replace(stored, loads=()), request)


def test_cpus_for_which_the_loader_ends_differently_are_told_apart() -> None:
    stored = _stored(_image())
    old, new = describe_host(KNOWLEDGE, cpu="nehalem"), describe_host(KNOWLEDGE, cpu="haswell")
    found = [check(stored, (host,), Request(runtimes=("docker",)), KNOWLEDGE).findings for host in (old, new)]
    assert [any(finding.rule == "LIB001" for finding in findings) for findings in found] == [True, False]
    assert len(stored.loads) == 2


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_every_host_is_of_a_kind_that_is_kept(host: HostProfile) -> None:
    assert hwcaps_of(host, KNOWLEDGE) in KINDS


def test_a_check_believes_it() -> None:
    # The control of the tests above: without looking at it they would pass as well.
    assert kept_work(_lying("a lie"), ()).roots.unstartable == (Unstartable("a lie", "absent"),)


def test_that_of_another_model_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = _lying("a lie")
    monkeypatch.setattr(code, "digest", lambda: "another")
    assert kept_work(stored, ()) is None


@pytest.mark.parametrize(
    "damage", [{"reaches": "e"}, {"reaches": "xxx"}, {"starts": "0"}, {"starts": "0 99"}, {"chosen": "0 0 gone"}]
)
def test_a_damaged_one_is_worked_out_again(damage: dict[str, str]) -> None:
    image = _stored(_image())
    damaged = msgspec.structs.replace(
        image, loads=tuple(msgspec.structs.replace(each, **damage) for each in image.loads)
    )
    assert kept_work(damaged, ()).closure is None
    for request in (OWN, Request(runtimes=INJECTING)):
        assert _says(damaged, request) == _says(image, request)


@pytest.mark.parametrize("damage", [{"taken": "7"}, {"contexts": ""}, {"within": "99"}, {"reaches": "x"}])
def test_damaged_outcomes_are_worked_out_again(damage: dict[str, str]) -> None:
    image = _stored(_image())
    (loads, *_) = image.loads
    damaged = msgspec.structs.replace(loads, outcomes=msgspec.structs.replace(loads.outcomes, **damage))
    assert unpacked(image, loads) is not None
    assert unpacked(image, damaged) is None


def test_an_injection_is_judged_with_the_outcomes_that_it_brings() -> None:
    # The control of the tests above, as test_a_check_believes_it.
    image = _stored(_image())
    (loads, *_) = image.loads
    lying = msgspec.structs.replace(
        loads, outcomes=msgspec.structs.replace(loads.outcomes, reaches="p" * len(loads.outcomes.reaches))
    )
    stored = msgspec.structs.replace(image, loads=(lying,))
    closure = Closures(stored).under(KNOWLEDGE.runtimes["apptainer-nv"], HOSTS[0])
    assert closure.reach("/bin/app") == "path"


def test_a_profile_brings_it(tmp_path) -> None:
    file = tmp_path / "profile.json"
    assert imgcheck("profile", f"oci:{CHECKOUT}/demo/skylake512", "-o", file).returncode == 0
    assert kept_work(decode(file.read_bytes(), ImageProfile, "test"), ()) is not None


def _lying(word: str) -> ImageProfile:
    image = _stored(_image())
    loads = tuple(msgspec.structs.replace(each, unstartable=(Unstartable(word, "absent"),)) for each in image.loads)
    return msgspec.structs.replace(image, loads=loads)
