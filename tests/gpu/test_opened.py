"""GPU014 on TensorFlow's own library: what its dlopen finds and misses must be what imgcheck says of the same tree."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from imgcheck.check.context import Context
from imgcheck.check.gpu import check
from imgcheck.check.needs import needs
from imgcheck.documents.image import Component, FileRecord, ImageProfile
from imgcheck.documents.report import Finding
from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.model import Loader
from imgcheck.loader.roots import find_roots
from imgcheck.profile.components import detect
from tests.gpu_files import INJECTING, KNOWLEDGE, V100, gpu_file, host, module
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need, pypi_wheel

pytestmark = pytest.mark.slow

SITE = "/usr/local/lib/python3.11/dist-packages"
FRAMEWORK = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
PLACES = {
    "libcudart.so.12": "cuda_runtime", "libcublas.so.12": "cublas", "libcublasLt.so.12": "cublas",
    "libcufft.so.11": "cufft", "libcusolver.so.11": "cusolver", "libcusparse.so.12": "cusparse",
    "libcudnn.so.9": "cudnn",
}  # fmt: skip
"""What TensorFlow 2.21 opens, and the directory of NVIDIA's wheel that has it."""
METADATA = "tensorflow-2.21.0.dist-info/METADATA"
NEVER_FOUND = "libcusolver.so.11"
"""RUNPATH of that release leaves its directory out, so that `pip install tensorflow[and-cuda]` does not do."""
ASKS = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for name in ("CudaRuntime", "Cublas", "CublasLt", "Cufft", "Cusolver", "Cusparse", "Cudnn"):
    function = f"Get{name}DsoHandle"
    opened = getattr(library, f"_ZN3tsl8internal9DsoLoader{len(function)}{function}Ev")
    opened.restype, status = None, ctypes.create_string_buffer(256)
    opened(ctypes.byref(status))
    print(int(int.from_bytes(status[:8], "little") == 1))  # absl::Status: what is inlined and no error
"""


@pytest.fixture(scope="module")
def wheel() -> Iterator[zipfile.ZipFile]:
    options = ("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311")
    with zipfile.ZipFile(pypi_wheel("tensorflow==2.21.0", *options, "--platform", "manylinux_2_27_x86_64")) as archive:
        yield archive


@pytest.fixture
def root(tmp_path: Path, wheel: zipfile.ZipFile) -> Root:
    """The files of the wheel that decide, without the GPU code, in a root with a program to import them."""
    need("gcc")
    root = Root(tmp_path / "root")
    for name in (
        "tensorflow/libtensorflow_framework.so.2",
        "tensorflow/include/third_party/gpus/cuda/cuda_config.h",
        METADATA,
    ):
        target = root.at(f"{SITE}/{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with wheel.open(name) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy)
    return root


def place(soname: str) -> str:
    return f"{SITE}/nvidia/{PLACES[soname]}/lib/{soname}"


def profile(
    root: Root, *environment: str, components: tuple[Component, ...] = (), command: tuple[str, ...] = ()
) -> ImageProfile:
    image = profile_of(root.path, environment, command)
    texts = {
        f"/{path.relative_to(root.path)}": path.read_bytes() for path in root.at(SITE).rglob("*") if path.suffix == ".h"
    }
    texts |= {f"{SITE}/{METADATA}": root.at(f"{SITE}/{METADATA}").read_bytes()}
    found = detect(image.files, image.objects, texts, image.config)
    return replace(image, components=(*found, *components))


def cell(image: ImageProfile) -> Context:
    roots = find_roots(image)
    machine = host(V100, driver="550.54.14")
    return Context(image, machine, INJECTING, KNOWLEDGE, Loader(image, roots).close(), roots=roots)


def answer(context: Context, rule: str = "GPU014") -> tuple[str, list[Finding]]:
    answers = check(context)
    (outcome,) = (result.outcome for result in answers.checks if result.rule == rule)
    return outcome, [finding for finding in answers.findings if finding.rule == rule]


def missed(image: ImageProfile) -> set[str]:
    """Names that TensorFlow opens and that do not come, by imgcheck."""
    problems = [problem for problem in cell(image).closure.problems if problem.kind == "opened"]
    own = {problem.needed for problem in problems if problem.path == FRAMEWORK}
    return own | {problem.path.rpartition("/")[2] for problem in problems if problem.path != FRAMEWORK}


def missed_by_dlopen(root: Root, environment: Mapping[str, str]) -> set[str]:
    """The same by TensorFlow's own functions in a process of their own."""
    command = [sys.executable, "-c", ASKS, root.at(FRAMEWORK)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return {name for name, found in zip(PLACES, done.stdout.split(), strict=True) if found == "0"} - {
        "libcublasLt.so.12"  # which libcublas brings; imgcheck does not ask for it by itself
    }


@pytest.mark.parametrize("left_out", [None, *(name for name in PLACES if name != "libcublasLt.so.12"), "all"])
def test_what_tensorflow_misses_is_what_its_dlopen_misses(root: Root, left_out: str | None) -> None:
    for name in PLACES:
        if left_out not in (name, "all"):
            root.library(place(name))
    told = missed(profile(root))
    assert told == missed_by_dlopen(root, {"LD_LIBRARY_PATH": ""})
    assert NEVER_FOUND in told
    assert left_out in (None, "all") or left_out in told


def test_a_library_of_a_library_that_is_missing(root: Root) -> None:
    for name in PLACES:
        if name != "libcudnn.so.9":
            root.library(place(name))
    root.library("/opt/libzlibwapi.so.1")
    root.library(place("libcudnn.so.9"), ["/opt/libzlibwapi.so.1"])
    root.at("/opt/libzlibwapi.so.1").unlink()
    told = missed(profile(root))
    assert told == missed_by_dlopen(root, {"LD_LIBRARY_PATH": ""}) == {NEVER_FOUND, "libcudnn.so.9"}


def test_a_library_that_was_opened_before_serves_the_next(root: Root) -> None:
    for name in PLACES:
        if name != "libcusparse.so.12":
            root.library(place(name))
    root.library(place("libcusparse.so.12"), [place("libcufft.so.11")])  # without a RUNPATH that leads there
    told = missed(profile(root))
    assert told == missed_by_dlopen(root, {"LD_LIBRARY_PATH": ""}) == {NEVER_FOUND}


def test_ld_library_path_of_the_image_leads_to_the_rest(root: Root) -> None:
    for name in PLACES:
        root.library(place(name))
    directory = str(Path(place(NEVER_FOUND)).parent)
    image = profile(root, f"LD_LIBRARY_PATH={directory}")
    assert missed(image) == missed_by_dlopen(root, {"LD_LIBRARY_PATH": str(root.at(directory))}) == set()


def with_gpu_code(root: Root, *environment: str, components: tuple[Component, ...] = ()) -> Context:
    """A cell of the root in which a larger file of TensorFlow holds GPU code."""
    context = cell(profile(root, *environment, components=components))
    image = context.image
    record = FileRecord(f"{SITE}/tensorflow/libtensorflow_cc.so.2", "with-code", 0)
    objects = {**image.objects, "with-code": gpu_file(module(["70"]))}
    return replace(context, image=replace(image, files=(*image.files, record), objects=objects))


def test_missing_libraries_fail_with_tensorflows_words(root: Root) -> None:
    outcome, (found,) = answer(with_gpu_code(root))
    assert (outcome, found.severity, found.subject) == ("fail", "fail", "TensorFlow")
    assert "Skipping registering GPU devices" in found.predicted_error
    assert "libcudart.so.12" in found.title
    assert "tensorflow[and-cuda]" in found.remedy
    assert found.evidence[0].path == FRAMEWORK
    assert "{" not in found.title + found.why + found.remedy


def test_libraries_among_the_packages_that_are_not_found_fail_and_name_the_directory(root: Root) -> None:
    for name in PLACES:
        root.library(place(name))
    outcome, (found,) = answer(with_gpu_code(root))
    assert outcome == "fail"
    assert f"add {SITE}/nvidia/cusolver/lib to LD_LIBRARY_PATH" in found.remedy


def test_a_package_that_loads_such_libraries_makes_it_a_risk(root: Root) -> None:
    for name in PLACES:
        root.library(place(name))
    outcome, _ = answer(with_gpu_code(root, components=(Component("PyTorch", "2.5.1"),)))
    assert outcome == "risk"


def test_all_libraries_there_is_fine(root: Root) -> None:
    for name in PLACES:
        root.library(place(name))
    outcome, findings = answer(with_gpu_code(root, f"LD_LIBRARY_PATH={Path(place(NEVER_FOUND)).parent}"))
    assert (outcome, findings) == ("ok", [])


@pytest.mark.parametrize(("version", "outcome"), [("9.1.0", "fail"), ("9.3.0", "ok")])
def test_the_cudnn_that_ld_library_path_puts_first_is_compared(root: Root, version: str, outcome: str) -> None:
    root.library(place("libcudnn.so.9"))
    root.library(f"/opt/cudnn/lib/libcudnn.so.{version}", soname="libcudnn.so.9")
    root.link("/opt/cudnn/lib/libcudnn.so.9", f"libcudnn.so.{version}")
    context = with_gpu_code(root, "LD_LIBRARY_PATH=/opt/cudnn/lib")
    got, findings = answer(context, "GPU015")
    assert (got, [found.evidence[0].path for found in findings]) == (
        outcome,
        [] if outcome == "ok" else [f"/opt/cudnn/lib/libcudnn.so.{version}"],
    )
    kept = kept_work(with_loads(context.image), ())
    assert kept is not None
    assert kept.closure is not None
    assert answer(replace(context, closure=kept.closure), "GPU015")[0] == outcome


def test_unknown_gpus_leave_it_open(root: Root) -> None:
    context = with_gpu_code(root)
    unknown = replace(context, host=replace(context.host, gpus=type(context.host.gpus)()))
    assert answer(unknown) == ("unknown", [])


def test_the_profile_keeps_what_tensorflow_opens(root: Root) -> None:
    image = with_loads(profile(root))
    kept = kept_work(image, ())
    assert kept is not None
    assert {p.needed for p in kept.closure.problems if p.kind == "opened"} >= {"libcudart.so.12", "libcudnn.so.9"}


def test_what_is_opened_is_reached_as_its_opener_is(root: Root) -> None:
    library = "/opt/cuda/lib64/libcudnn.so.9"
    root.library(library)
    root.program("/bin/python3.11")
    root.program("/bin/other")
    environment = "LD_LIBRARY_PATH=/opt/cuda/lib64"
    for command, reach in ("/bin/python3.11", "import"), ("/bin/other", "unreached"):
        image = profile(root, environment, command=(command,))
        closure = Loader(image, find_roots(image)).close()
        assert (closure.reach(FRAMEWORK), closure.reach(library)) == (reach, reach)


def test_the_image_alone_tells_what_it_needs_from_outside(root: Root) -> None:
    for name in ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1"):
        root.library(f"/lib/x86_64-linux-gnu/{name}")
    (need,) = (each for each in needs(profile(root), KNOWLEDGE) if each.what == "from outside")
    assert "libcudnn.so.9" in need.needed
    assert need.because[0] == f"libcudart.so.12: opened for the GPU by {FRAMEWORK}"
