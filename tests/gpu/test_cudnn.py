"""GPU015: a cuDNN older than the one that a framework was built with, as its package and the file's name tell them."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from imgcheck.check.context import Context
from imgcheck.check.gpu import check
from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import Component, FileRecord, ImageConfig
from imgcheck.documents.report import Finding
from imgcheck.knowledge.cudnn import cudnn_users
from imgcheck.loader.closure import Roots
from imgcheck.profile.components import detect
from imgcheck.versions import compare
from tests.gpu_files import KNOWLEDGE, V100, cell, gpu_file, host, image, module

SITE = "/usr/local/lib/python3.11/dist-packages"
FRAMEWORK = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
TORCH = f"{SITE}/torch/lib/libtorch_cuda.so"
JAX = f"{SITE}/jax_cuda12_plugin/_versions.so"
PACKAGED = f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"
MACHINE = host(V100, driver="550.54.14")
TENSORFLOW = Component("TensorFlow", "2.18.0", FRAMEWORK, opener=FRAMEWORK, opens=("libcudnn.so.9",), cudnn="9.3.0.75")


def packaged(version: str) -> Component:
    return Component("cuDNN", version, f"{SITE}/nvidia_cudnn_cu12-{version}.dist-info/METADATA")


def getting(
    framework: Component,
    library: str,
    *components: Component,
    others: tuple[str, ...] = (),
) -> Context:
    """A cell in which a framework's own file gets `library`, in an image with `others` besides."""
    asking = framework.opener or framework.path
    files = {path: gpu_file(module(["70"])) for path in dict.fromkeys((asking, library, *others))}
    context = cell(image(files, components=[framework, *components]), MACHINE)
    chosen = {(asking, "libcudnn.so.9"): library}
    return replace(context, closure=replace(context.closure, chosen=chosen))


def answer(context: Context) -> tuple[str, list[Finding]]:
    answers = check(context)
    (outcome,) = (result.outcome for result in answers.checks if result.rule == "GPU015")
    return outcome, [finding for finding in answers.findings if finding.rule == "GPU015"]


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("9.1.0", "fail"), ("9.2.9", "fail"), ("8.9.7", "fail"), ("10.0.0", "fail"), ("9.3.0", "ok"), ("9.10.2", "ok")],
)
def test_another_major_or_a_lower_minor_version_is_refused(version: str, outcome: str) -> None:
    assert answer(getting(TENSORFLOW, f"/usr/lib/x86_64-linux-gnu/libcudnn.so.{version}"))[0] == outcome


def test_tensorflow_says_so_in_its_own_words() -> None:
    (found,) = answer(getting(TENSORFLOW, "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0"))[1]
    assert found.predicted_error.startswith(
        "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.  CuDNN library needs to have"
    )
    assert found.evidence[0].path == "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0"
    assert "'nvidia-cudnn-cuNN>=9.3,<10'" in found.remedy
    assert "{" not in found.title + found.why + found.remedy


def test_pytorch_makes_the_comparison_in_some_calls() -> None:
    torch = Component("PyTorch", "2.8.0", TORCH, cudnn="9.10.2.21")
    outcome, (found,) = answer(getting(torch, "/opt/cudnn/lib/libcudnn.so.9.1.0"))
    assert outcome == "risk"
    assert "was compiled  against (9, 10, 2) but found runtime version (9, 1, 0)" in found.predicted_error


@pytest.mark.parametrize(("version", "outcome"), [("9.1.0.70", "fail"), ("9.3.0.75", "ok")])
def test_the_version_of_nvidias_package_is_in_its_record(version: str, outcome: str) -> None:
    assert answer(getting(TENSORFLOW, PACKAGED, packaged(version)))[0] == outcome


def test_a_version_that_nothing_tells_leaves_it_open() -> None:
    assert answer(getting(TENSORFLOW, PACKAGED)) == ("unknown", [])
    elsewhere = Component("cuDNN", "9.1.0.70", "/opt/venv/site-packages/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA")
    assert answer(getting(TENSORFLOW, PACKAGED, elsewhere)) == ("unknown", [])


def test_jax_takes_what_nvidias_package_has_wherever_another_one_lies() -> None:
    jax = Component("JAX CUDA 12 plugin", "0.7.0", opener=JAX, opens=("libcudnn.so.9",), cudnn="9.8")
    old = "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0"
    assert answer(getting(jax, old, packaged("9.10.2.21"), others=(PACKAGED,)))[0] == "ok"
    assert answer(getting(jax, old, packaged("9.1.0.70"), others=(PACKAGED,)))[0] == "fail"
    assert answer(getting(jax, old))[0] == "fail"


def test_a_fitting_one_that_is_hidden_is_named() -> None:
    hidden = "/opt/old/libcudnn.so.9.1.0"
    (found,) = answer(getting(TENSORFLOW, hidden, packaged("9.3.0.75"), others=(PACKAGED,)))[1]
    assert f"name {SITE}/nvidia/cudnn/lib first in LD_LIBRARY_PATH" in found.remedy
    assert "take /opt/old out of it" in found.remedy


def test_a_script_that_sets_loader_variables_makes_it_a_risk() -> None:
    context = getting(TENSORFLOW, "/opt/libcudnn.so.9.1.0")
    assert answer(replace(context, roots=Roots(steered=("/usr/bin/python3.11",))))[0] == "risk"


def test_what_it_does_not_get_or_does_not_compare_is_no_matter() -> None:
    other = replace(TENSORFLOW, opener="", path="/opt/other/libtensorflow_framework.so.2")
    context = getting(TENSORFLOW, "/opt/libcudnn.so.9.1.0")
    profile = replace(context.image, components=(other,))
    assert answer(replace(context, image=profile))[0] == "not-applicable"
    assert answer(getting(replace(TENSORFLOW, cudnn=""), "/opt/libcudnn.so.9.1.0"))[0] == "not-applicable"


def test_unknown_gpus_leave_it_open_and_no_gpu_makes_it_pointless() -> None:
    context = getting(TENSORFLOW, "/opt/libcudnn.so.9.1.0")
    unknown = replace(MACHINE, gpus=type(MACHINE.gpus)())
    assert answer(replace(context, host=unknown)) == ("unknown", [])
    assert answer(replace(context, host=host(driver="550.54.14")))[0] == "not-applicable"


# What a framework was built with


def built(record: str, name: str, version: str, requirement: str = "", *more: str) -> str:
    """`cudnn` of the one framework in an image with this record of a package."""
    texts = {f"{SITE}/{record}": "\n".join([f"Name: {name}", f"Version: {version}", requirement, *more, ""]).encode()}
    library = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
    records = [FileRecord(library, library, 0)] if name.startswith("tensorflow") else []
    (component,) = detect(records, {library: CodeFacts(1)}, texts, ImageConfig())
    return component.cudnn


@pytest.mark.parametrize(
    ("record", "name", "version", "requirement", "cudnn"),
    [
        ("torch-2.0.1.dist-info/METADATA", "torch", "2.0.1",
         'Requires-Dist: nvidia-cudnn-cu11 (==8.5.0.96) ; platform_system == "Linux"', "8.5.0.96"),
        ("torch-2.14.1.dist-info/METADATA", "torch", "2.14.1",
         'Requires-Dist: nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"', "9.24.0.43"),
        ("tensorflow-2.22.0.dist-info/METADATA", "tensorflow", "2.22.0",
         'Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.8.0.87; extra == "and-cuda"', "9.8.0.87"),
        ("jax_cuda12_plugin-0.5.0.dist-info/METADATA", "jax-cuda12-plugin", "0.5.0",
         "Requires-Dist: nvidia-cudnn-cu12 <10.0,>=9.1 ; extra == 'with_cuda'", "9.1"),
        ("torch-2.8.0+cpu.dist-info/METADATA", "torch", "2.8.0+cpu", "", ""),
    ],
)  # fmt: skip
def test_the_package_tells_what_it_was_built_with(
    record: str, name: str, version: str, requirement: str, cudnn: str
) -> None:
    assert built(record, name, version, requirement) == cudnn


def test_releases_of_tensorflow_whose_code_was_read_are_in_the_table() -> None:
    required = "Requires-Dist: nvidia-cudnn-cu11 (==8.7.0.84) ; extra == 'and-cuda'"
    assert built("tensorflow-2.14.0.dist-info/METADATA", "tensorflow", "2.14.0", required) == "8.6.0"
    assert built("tensorflow_gpu-1.12.3.dist-info/METADATA", "tensorflow-gpu", "1.12.3") == "7.1.4"
    assert built("tensorflow_gpu-1.4.0.dist-info/METADATA", "tensorflow-gpu", "1.4.0") == ""


def test_frameworks_name_their_sources_and_releases_are_in_order() -> None:
    users = cudnn_users(KNOWLEDGE).values()
    assert any(len(user.releases) > 1 for user in users)
    for user in users:
        assert user.sources
        since = [release.since for release in user.releases]
        assert all(compare(one, other) < 0 for one, other in pairwise(since))
