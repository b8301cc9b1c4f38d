"""What an image is said to hold, from the records that packages leave."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.documents.facts import CodeFacts, GpuCode, GpuModule, Linkage
from imgcheck.documents.image import ONE_OF, Component, FileRecord, ImageConfig
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.frameworks import framework_of, frameworks
from imgcheck.profile.components import TEXTS, detect

SITE = "/usr/lib/python3/dist-packages"


def found(
    texts: dict[str, bytes] | None = None, files: dict[str, GpuCode] | None = None, environment: tuple[str, ...] = ()
) -> dict[str, Component]:
    texts, files = texts or {}, files or {}
    records = [FileRecord(path, path, 0) for path in files]
    objects = {path: CodeFacts(1, gpu=gpu) for path, gpu in files.items()}
    components = detect(records, objects, texts, ImageConfig(environment=environment))
    assert len({component.name for component in components}) == len(components)
    return {component.name: component for component in components}


def test_the_summary_of_a_tensorflow_image() -> None:
    texts = {
        "/usr/local/cuda-9.2/version.txt": b"CUDA Version 9.2.148\n",
        f"{SITE}/tensorflow_gpu-1.12.0.dist-info/METADATA": b"Name: tensorflow-gpu\nVersion: 1.12.0\n",
        f"{SITE}/tensorflow/include/cuda/cuda_config.h": b'#define TF_CUDA_CAPABILITIES CudaVersion("7.0")\n'
        b'#define TF_CUDA_VERSION "9.2"\n',
    }
    files = {"/usr/lib/libcudnn.so.7.2.1": GpuCode(), "/usr/lib/libnccl.so.2.3.4": GpuCode()}
    components = found(texts, files)
    assert [c.label for c in components.values()] == [
        "CUDA 9.2.148", "cuDNN 7.2.1", "NCCL 2.3.4", "TensorFlow 1.12.0 for 7.0",
    ]  # fmt: skip
    assert components["TensorFlow"].minimum_capability == "7.0"


def test_capabilities_from_the_library_then_from_its_code() -> None:
    library = "/opt/tf/libtensorflow_framework.so"
    assert found(files={library: GpuCode(built_for=("5.2", "3.5"))})["TensorFlow"].minimum_capability == "3.5"
    code = GpuCode(modules=(GpuModule(1, ("70", "60", "90a")),))
    assert found(files={"/opt/tf/_pywrap_tensorflow_internal.so": code})["TensorFlow"].built_for == (
        "6.0",
        "7.0",
        "9.0",
    )


def test_pytorch_and_its_cuda() -> None:
    texts = {f"{SITE}/torch/version.py": b"__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\n"}
    torch = found(texts, {f"{SITE}/torch/lib/libtorch_python.so": GpuCode(built_for=("5.0", "9.0"))})["PyTorch"]
    assert (torch.version, torch.built_for, torch.detail) == ("2.5.1+cu124", ("5.0", "9.0"), "built with CUDA 12.4")


def test_cuda_from_json_environment_and_runtime() -> None:
    json = {"/usr/local/cuda-12.4/version.json": b'{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'}
    assert found(json)["CUDA"].version == "12.4.1"
    assert found(environment=("CUDA_VERSION=9.0.176",))["CUDA"].version == "9.0.176"
    assert found(files={"/usr/lib/libcudart.so.12": GpuCode(cudart="12.4")})["CUDA"].version == "12.4"


def test_wheels_of_cuda_libraries() -> None:
    texts = {f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA": b"Name: nvidia-cudnn-cu12\nVersion: 9.1.0.70\n"}
    assert found(texts)["cuDNN"].version == "9.1.0.70"


def test_nothing_in_an_empty_image() -> None:
    assert found() == {}


@given(st.dictionaries(st.sampled_from([pattern.replace("*", "/x") for pattern in TEXTS]), st.binary(max_size=200)))
def test_hostile_texts_raise_nothing(texts: dict[str, bytes]) -> None:
    found(texts)


def test_deeply_nested_json() -> None:
    assert found({"/usr/local/cuda/version.json": b"[" * 100_000}) == {}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/x/torch/version.py", b"cuda:\n"),
        ("/x/torch/version.py", b"cuda:" + b" " * 100_000 + b"\n"),
        ("/x/torch/version.py", b"__version__ = '"),
        ("/x/tensorflow/python/platform/build_info.py", b"'cuda_compute_capabilities': [ "),
        ("/x/cuda_config.h", b"#define TF_CUDA_CAPABILITIES  "),
        ("/x/cudnn.h", b"#define CUDNN_MAJOR  "),
    ],
)
def test_texts_of_a_megabyte_take_no_longer_than_others(path: str, line: bytes) -> None:
    started = time.process_time()
    detect([], {}, {path: line * (1_000_000 // len(line))}, ImageConfig())
    assert time.process_time() - started < 5


HEADERS = {
    "1.15.0": b'#define TF_CUDA_VERSION "10.0"\n#define TF_CUDA_LIB_VERSION "10.0"\n#define TF_CUDNN_VERSION "7"\n',
    "2.1.0": b'#define TF_CUDA_VERSION "10.1"\n#define TF_CUDA_LIB_VERSION "10"\n#define TF_CUDNN_VERSION "7"\n',
    "2.3.0": b'#define TF_CUDA_VERSION "10.1"\n#define TF_CUBLAS_VERSION "10"\n#define TF_CURAND_VERSION "10"\n',
    "2.15.1": b'#define TF_CUDART_VERSION "12"\n#define TF_CURAND_VERSION "10"\n#define TF_CUDNN_VERSION "8"\n',
    "2.15.1-cpu": b'#define TF_CUDA_VERSION ""\n#define TF_CUDART_VERSION ""\n#define TF_CUDNN_VERSION ""\n',
}
"""Of cuda_config.h in the wheels, in part."""


def opened(release: str, needed: tuple[str, ...] = ()) -> tuple[str, ...]:
    package = f"{SITE}/tensorflow"
    library = f"{package}/libtensorflow_framework.so.2"
    texts = {
        f"{SITE}/tensorflow.dist-info/METADATA": f"Name: tensorflow\nVersion: {release.partition('-')[0]}\n".encode(),
        f"{package}/include/cuda/cuda_config.h": HEADERS[release],
    }
    facts = CodeFacts(1, Linkage(64, "x86_64", needed=needed))
    (component,) = detect([FileRecord(library, library, 0)], {library: facts}, texts, ImageConfig())
    assert component.opener == library
    return component.opens


def test_libraries_that_tensorflow_opens_by_itself() -> None:
    assert opened("1.15.0") == (
        "libcudart.so.10.0", "libcublas.so.10.0", "libcufft.so.10.0", "libcurand.so.10.0", "libcusolver.so.10.0",
        "libcusparse.so.10.0", "libcudnn.so.7",
    )  # fmt: skip
    assert opened("2.1.0")[:2] == ("libcudart.so.10.1", "libcublas.so.10")
    assert opened("2.3.0") == ("libcudart.so.10.1", "libcublas.so.10", "libcurand.so.10")
    assert opened("2.15.1") == ("libcudart.so.12", "libcudnn.so.8")  # no cuRAND from 2.14 on


def test_a_build_without_cuda_opens_nothing() -> None:
    assert opened("2.15.1-cpu") == ()


def test_what_a_framework_is_linked_against_it_does_not_open() -> None:
    assert opened("2.15.1", needed=("libcudart.so.12", "libcudnn.so.8")) == ()


@pytest.mark.parametrize(
    ("release", "wanted"), [("1.20.0", ()), ("3.24.0", ("libcublas.so.11",)), ("4.8.5", ("libcublas.so.12",))]
)
def test_ctranslate2_opens_cublas_of_its_release(release: str, wanted: tuple[str, ...]) -> None:
    library = f"{SITE}/ctranslate2.libs/libctranslate2-a7a60d30.so.{release}"
    texts = {f"{SITE}/ctranslate2-{release}.dist-info/METADATA": f"Name: ctranslate2\nVersion: {release}\n".encode()}
    (component,) = detect([FileRecord(library, library, 0)], {library: CodeFacts(1)}, texts, ImageConfig())
    assert (component.label, component.opener, component.opens) == (f"CTranslate2 {release}", library, wanted)


@pytest.mark.parametrize(("cuda", "wanted"), [("12", "libcufft.so.11"), ("13", "libcufft.so.12")])
def test_jax_opens_the_libraries_of_its_plugin(cuda: str, wanted: str) -> None:
    library = f"{SITE}/jax_cuda{cuda}_plugin/_versions.so"
    other = f"{SITE}/other/_versions.so"
    texts = {
        f"{SITE}/jax_cuda{cuda}_plugin-0.10.2.dist-info/METADATA": b"Name: jax-cuda%s-plugin\nVersion: 0.10.2\n"
        % cuda.encode()
    }
    records = [FileRecord(path, path, 0) for path in (other, library)]
    (component,) = detect(records, {path: CodeFacts(1) for path in (other, library)}, texts, ImageConfig())
    assert component.opener == library
    assert wanted in component.opens


def test_onnx_runtime_opens_its_library_for_cuda() -> None:
    library = f"{SITE}/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so"
    texts = {f"{SITE}/onnxruntime_gpu-1.22.0.dist-info/METADATA": b"Name: onnxruntime-gpu\nVersion: 1.22.0\n"}
    (component,) = detect([FileRecord(library, library, 0)], {library: CodeFacts(1)}, texts, ImageConfig())
    assert (component.label, component.opens) == ("ONNX Runtime 1.22.0", ("$ORIGIN/libonnxruntime_providers_cuda.so",))


def cupy(package: str, release: str, *environment: str, needed: tuple[str, ...] = ()) -> Component:
    """CuPy with the module that opens NVRTC, beside a package that goes with it."""
    module = f"{SITE}/cupy_backends/cuda/libs/nvrtc.cpython-311-x86_64-linux-gnu.so"
    texts = {
        f"{SITE}/cupy_xarray-0.1.4.dist-info/METADATA": b"Name: cupy-xarray\nVersion: 0.1.4.1.1\n",
        f"{SITE}/cupy.dist-info/METADATA": f"Name: {package}\nVersion: {release}\n".encode(),
    }
    facts = CodeFacts(1, Linkage(64, "x86_64", needed=needed))
    config = ImageConfig(environment=environment)
    (component,) = detect([FileRecord(module, module, 0)], {module: facts}, texts, config)
    assert component.label == f"CuPy {release}"
    return component


@pytest.mark.parametrize(
    ("package", "release", "wanted"),
    [
        ("cupy-cuda12x", "12.3.0", ()),  # linked
        ("cupy-cuda11x", "13.6.0", ("libnvrtc.so.11.2",)),
        ("cupy-cuda12x", "13.0.0", ("libnvrtc.so.12",)),
        ("cupy-cuda13x", "13.6.0", ("libnvrtc.so.13",)),
        ("cupy-cuda12x", "14.2.0", ("libnvrtc.so.13 or libnvrtc.so.12",)),
        ("cupy-cuda12x", "15.0.0", ()),  # not known
        ("cupy-rocm-5-0", "13.6.0", ()),
        ("cupy", "13.6.0", ()),  # for what it was built is not told
    ],
)
def test_cupy_opens_nvrtc_of_its_package(package: str, release: str, wanted: tuple[str, ...]) -> None:
    assert cupy(package, release).opens == wanted


def test_a_cupy_that_is_linked_to_nvrtc_does_not_open_it() -> None:
    assert cupy("cupy-cuda12x", "13.0.0b1", needed=("libnvrtc.so.12",)).opens == ()


def test_cupy_looks_where_the_variables_of_the_image_lead() -> None:
    own = ("$ORIGIN/../../../nvidia/cu13/lib", "$ORIGIN/../../../nvidia/cuda_nvrtc/lib")
    assert cupy("cupy-cuda12x", "13.6.0", "CUDA_PATH=/opt/cuda").seeks == ()
    assert cupy("cupy-cuda12x", "14.2.0", "CUDA_PATH=", "CUDA_HOME=cuda").seeks == own
    assert cupy("cupy-cuda12x", "14.2.0", "CONDA_PREFIX=/conda").seeks == (*own, "/conda/lib")


def test_an_unknown_release_opens_what_every_one_opens() -> None:
    framework = framework_of(Knowledge(), "TensorFlow", "")
    assert framework is not None
    names = {library.name for library in framework.libraries if library.opened_by("", "tensorflow")}
    assert "libcudnn.so" in names
    assert "libcurand.so" not in names


def test_frameworks_name_their_sources_and_open_something() -> None:
    found = frameworks(Knowledge())
    assert found
    for framework in found:
        assert framework.sources
        assert framework.libraries
        for library in framework.libraries:
            assert not (library.version and library.versions)
            assert library.version or library.versions or library.name.startswith("$ORIGIN/") or ONE_OF in library.name
