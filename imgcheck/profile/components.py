"""Names what a person asks of an image first: CUDA, cuDNN, NCCL, TensorFlow, PyTorch, with versions and GPU targets.

Names and versions come from what packages record of themselves (dist-info, version files, headers), from file names
that carry a version, and from what the GPU engine read in the binaries.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath

from msgspec import structs

from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import Component, FileRecord, ImageConfig
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.cudnn import CudnnUser, cudnn_users
from imgcheck.knowledge.frameworks import Framework, framework_of
from imgcheck.versions import parse

TEXTS: tuple[str, ...] = (
    "/etc/os-release",
    "/usr/lib/os-release",
    "*/version.txt",
    "/usr/local/cuda*/version.json",
    "/opt/*cuda*/version.json",
    "*/cudnn.h",
    "*/cudnn_version.h",
    "*/nccl.h",
    "*/cuda_config.h",
    "*/torch/version.py",
    "*/tensorflow/python/platform/build_info.py",
)
"""Small text files that `detect` reads besides the records of Python packages (requirements.RECORDS), as fnmatch
patterns on absolute paths (`*` crosses directories).
"""

_PACKAGES = {
    "tensorflow": "TensorFlow", "tensorflow-gpu": "TensorFlow", "tf-nightly": "TensorFlow",
    "tf-nightly-gpu": "TensorFlow", "torch": "PyTorch", "jaxlib": "JAX", "numba": "Numba", "triton": "Triton",
    "ctranslate2": "CTranslate2", "jax-cuda12-plugin": "JAX CUDA 12 plugin", "jax-cuda13-plugin": "JAX CUDA 13 plugin",
    "onnxruntime-gpu": "ONNX Runtime",
}  # fmt: skip
_LIBRARIES = {
    "cudnn": "cuDNN", "nccl": "NCCL", "nvrtc": "NVRTC", "nvinfer": "TensorRT", "cudart": "CUDA runtime",
}  # fmt: skip
_NVIDIA_WHEELS = {"cudnn": "cuDNN", "nccl": "NCCL", "cuda-nvrtc": "NVRTC", "cuda-runtime": "CUDA runtime"}
_VERSIONED = re.compile(r"lib(cudnn|nccl|nvrtc|nvinfer|cudart)\.so\.(\d+(?:\.\d+)*)")
_CUDNN_REQUIRED = re.compile(
    r"^Requires-Dist: *nvidia-cudnn(?:-cu\d+)?[ (]*(?:<\d[\d.]*, *)?(?:==|>=) *(\d+(?:\.\d+)*)", re.MULTILINE
)
_CUPY = re.compile(r"cupy(-cuda\d+x?|-rocm-\d+-\d+)?")
"""Its packages, and none of those that go with it (cupy-xarray)."""
_ORDER = ("CUDA", "CUDA runtime", "cuDNN", "NCCL", "TensorRT", "TensorFlow", "PyTorch")

Texts = Mapping[str, bytes]


def detect(
    records: Sequence[FileRecord], objects: Mapping[str, CodeFacts], texts: Texts, config: ImageConfig
) -> tuple[Component, ...]:
    """The components of an image, in the order in which people name them.

    `texts` holds the files that match `TEXTS`, and the records of Python packages, by path. A file that does not hold
    what its name promises is no component; nothing is raised.
    """
    found: dict[str, Component] = {}
    sources = (
        _distribution(texts),
        _cuda(texts, config),
        _wheels(texts),
        _headers(texts),
        _library_names(records),
        _library_code(records, objects),
    )
    for source in sources:
        for component in source:
            known = found.get(component.name)
            if known is None or len(parse(component.version)) > len(parse(known.version)):
                found[component.name] = component
    for name, complete in _FRAMEWORKS.items():
        if completed := complete(found.get(name), records, objects, texts):
            found[name] = completed
    for name, component in found.items():
        if framework := framework_of(_knowledge(), name, component.version):
            opening = _with_opened(component, framework, records, objects, texts)
            found[name] = structs.replace(opening, seeks=_sought(framework, config)) if opening.opens else opening
    for name, user in cudnn_users(_knowledge()).items():
        if name in found:
            found[name] = structs.replace(found[name], cudnn=_built_with(found[name], user, texts))
    if "CUDA" in found:
        found.pop("CUDA runtime", None)
    elif "CUDA runtime" in found:
        runtime = found.pop("CUDA runtime")
        found["CUDA"] = Component("CUDA", runtime.version, runtime.path, detail="runtime")
    return tuple(sorted(found.values(), key=_rank))


def _rank(component: Component) -> tuple[int, str]:
    return (_ORDER.index(component.name) if component.name in _ORDER else len(_ORDER)), component.name


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _search(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""


def _distribution(texts: Texts) -> Iterable[Component]:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        text = _text(texts.get(path, b""))
        name = _search(r'^NAME="?([^"\n]+)"?', text)
        if name:
            yield Component(name, _search(r'^VERSION_ID="?([^"\n]+)"?', text), path)
            return


def _cuda(texts: Texts, config: ImageConfig) -> Iterable[Component]:
    for path, raw in texts.items():
        name = PurePosixPath(path).name
        if name == "version.txt" and "cuda" in path:
            version = _search(r"^CUDA Version (\d+(?:\.\d+)+)", _text(raw))
        elif name == "version.json":
            version = _json_version(raw)
        else:
            continue
        if version:
            yield Component("CUDA", version, path)
    for setting in config.environment:
        key, _, value = setting.partition("=")
        if key == "CUDA_VERSION" and parse(value):
            yield Component("CUDA", ".".join(map(str, parse(value))), detail="environment CUDA_VERSION")


def _json_version(raw: bytes) -> str:
    try:
        version = json.loads(raw)["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version if isinstance(version, str) else ""


def _wheels(texts: Texts) -> Iterable[Component]:
    for path, raw in texts.items():
        if path.endswith(_RECORDS):
            name, version = _recorded_name(raw), _search(r"^Version: *(\S+)", _text(raw[:_HEAD]))
            if name and version:
                yield Component(name, version, path)


_RECORDS = (".dist-info/METADATA", ".egg-info/PKG-INFO")
_HEAD = 4096
"""Bytes of a package's record that have its name and version."""


def _recorded_name(record: bytes) -> str:
    """The component that a Python package is, by its record; empty where it is none."""
    package = _package(record)
    if package.startswith("nvidia-"):
        return _NVIDIA_WHEELS.get(re.sub(r"^nvidia-|-cu\d+$", "", package), "")
    return _PACKAGES.get(package) or ("CuPy" if _CUPY.fullmatch(package) else "")


def _package(record: bytes) -> str:
    """Name of a Python package by its record."""
    return _search(r"^Name: *(\S+)", _text(record[:_HEAD])).lower().replace("_", "-")


def _headers(texts: Texts) -> Iterable[Component]:
    for name, prefix, files in (("cuDNN", "CUDNN", ("cudnn_version.h", "cudnn.h")), ("NCCL", "NCCL", ("nccl.h",))):
        for path, raw in texts.items():
            if PurePosixPath(path).name in files:
                text = _text(raw)
                parts = [_search(rf"^#define {prefix}_{part}\s+(\d+)", text) for part in _PARTS[prefix]]
                if all(parts):
                    yield Component(name, ".".join(parts), path)


_PARTS = {"CUDNN": ("MAJOR", "MINOR", "PATCHLEVEL"), "NCCL": ("MAJOR", "MINOR", "PATCH")}


def _library_names(records: Sequence[FileRecord]) -> Iterable[Component]:
    for record in records:
        name = PurePosixPath(record.path).name
        match = _VERSIONED.fullmatch(name)
        if match:
            yield Component(_LIBRARIES[match[1]], match[2], record.path)
        elif name == "ptxas":
            yield Component("ptxas", "", record.path)


def _library_code(records: Sequence[FileRecord], objects: Mapping[str, CodeFacts]) -> Iterable[Component]:
    for record in records:
        facts = objects.get(record.object)
        gpu = facts.gpu if facts else None
        if gpu is None:
            continue
        name = PurePosixPath(record.path).name
        for library in gpu.libraries:
            product, _, version = library.partition(" ")
            if name.startswith(f"lib{product.lower()}.so"):
                yield Component(product, version.partition("+")[0], record.path, detail=version)
        if gpu.cudart and name.startswith("libcudart.so"):
            yield Component("CUDA runtime", gpu.cudart, record.path)


def _tensorflow(
    known: Component | None, records: Sequence[FileRecord], objects: Mapping[str, CodeFacts], texts: Texts
) -> Component | None:
    names = ("libtensorflow_framework.so", "libtensorflow_cc.so", "_pywrap_tensorflow_internal.so")
    files = [r for r in records if PurePosixPath(r.path).name.startswith(names)]
    if known is None and not files:
        return None
    listed = _config_list(texts) or _build_info_list(texts) or _recorded(files, objects) or _code(files, objects)
    path = files[0].path if files else known.path if known else ""
    return Component(
        "TensorFlow",
        known.version if known else "",
        path,
        minimum_capability=listed[0] if listed else "",
        built_for=listed,
        detail=f"built with CUDA {cuda}" if (cuda := _tensorflow_cuda(texts)) else "",
    )


def _config_list(texts: Texts) -> tuple[str, ...]:
    for path, raw in texts.items():
        if path.endswith("/cuda_config.h"):
            line = _search(r"^#define TF_CUDA_CAPABILITIES\s+(.*)$", _text(raw))
            return _sorted(re.findall(r'"(\d+\.\d+)"', line))
    return ()


def _build_info_list(texts: Texts) -> tuple[str, ...]:
    for path, raw in texts.items():
        if path.endswith("/build_info.py"):
            line = _search(r"""["']cuda_compute_capabilities["']\s*:\s*(\[[^\]]{0,2000}\])""", _text(raw))
            return _sorted(f"{major}.{minor}" for major, minor in re.findall(r"_(\d+)(\d)\b", line))
    return ()


def _tensorflow_cuda(texts: Texts) -> str:
    for path, raw in texts.items():
        if path.endswith("/cuda_config.h"):
            return _search(r'^#define TF_CUDA_VERSION\s+"([\d.]+)"', _text(raw))
        if path.endswith("/build_info.py"):
            return _search(r"""["']cuda_version["']\s*:\s*["']([\d.]+)["']""", _text(raw))
    return ""


def _torch(
    known: Component | None, records: Sequence[FileRecord], objects: Mapping[str, CodeFacts], texts: Texts
) -> Component | None:
    version, cuda = known.version if known else "", ""
    for path, raw in texts.items():
        if path.endswith("/torch/version.py"):
            version = _search(r"""^__version__ *= *["']([^"']+)["']""", _text(raw)) or version
            cuda = _search(r"""^cuda(?::[^=\n]*+| *+)= *+["']([\d.]+)["']""", _text(raw))
    files = [r for r in records if PurePosixPath(r.path).name.startswith(("libtorch_python.so", "libtorch_cuda"))]
    if not version and not files:
        return None
    listed = _recorded(files, objects) or _code(files, objects)
    return Component(
        "PyTorch",
        version,
        files[0].path if files else known.path if known else "",
        minimum_capability=listed[0] if listed else "",
        built_for=listed,
        detail=f"built with CUDA {cuda}" if cuda else "",
    )


@cache
def _knowledge() -> Knowledge:
    """One for all images, by which what is made of its tables is found again."""
    return Knowledge()


def _with_opened(
    component: Component,
    framework: Framework,
    records: Sequence[FileRecord],
    objects: Mapping[str, CodeFacts],
    texts: Texts,
) -> Component:
    """`component` with the libraries that it opens by itself: those that none of its files is linked against."""
    opener = next((record for record in records if _ends_with(record.path, framework.opener)), None)
    if opener is None:
        return component
    package = str(PurePosixPath(opener.path).parent) + "/"
    linkages = (objects[record.object].linkage for record in records if record.path.startswith(package))
    linked = {name for linkage in linkages if linkage for name in linkage.needed}
    defined = _defined(texts, package, framework.config) if framework.config else {}
    name = _package(texts.get(component.path, b""))
    wanted = (library for library in framework.libraries if library.opened_by(component.version, name))
    names = (library.asked_for(defined) for library in wanted)
    return structs.replace(component, opener=opener.path, opens=tuple(n for n in names if n and n not in linked))


def _sought(framework: Framework, config: ImageConfig) -> tuple[str, ...]:
    """The directories in which it looks, with the image's variables in place; none for one that is not set."""
    variables = {**config.variables, "ORIGIN": "$ORIGIN"}  # which stays for the loader
    named = (place.removeprefix("$").partition("/") for place in framework.seeks)
    return tuple(
        f"{variables[name]}/{below}" for name, _, below in named if variables.get(name, "").startswith(("/", "$ORIGIN"))
    )


def _built_with(component: Component, user: CudnnUser, texts: Texts) -> str:
    """The cuDNN that a framework was built with; empty where neither the table nor its package tells it."""
    if known := user.built_with(component.version):
        return known
    records = (raw for path, raw in texts.items() if path.endswith(_RECORDS) and _recorded_name(raw) == component.name)
    required = (_CUDNN_REQUIRED.search(_text(raw)) for raw in records)
    return next((match[1] for match in required if match), "")


def _ends_with(path: str, beginning: str) -> bool:
    """Whether the last parts of `path`, as many as `beginning` has, begin so."""
    return "/".join(path.split("/")[-1 - beginning.count("/") :]).startswith(beginning)


def _defined(texts: Texts, package: str, file: str) -> dict[str, str]:
    """Versions that a header of the package defines: `#define NAME "VERSION"`."""
    for path, raw in texts.items():
        if path.startswith(package) and path.endswith(f"/{file}"):
            return dict(re.findall(r'^#define +(\w+) +"([\d.]*)"', _text(raw), re.MULTILINE))
    return {}


_Completion = Callable[[Component | None, Sequence[FileRecord], Mapping[str, CodeFacts], Texts], Component | None]
_FRAMEWORKS: dict[str, _Completion] = {"TensorFlow": _tensorflow, "PyTorch": _torch}


def _recorded(files: Sequence[FileRecord], objects: Mapping[str, CodeFacts]) -> tuple[str, ...]:
    for record in files:
        facts = objects.get(record.object)
        if facts and facts.gpu and facts.gpu.built_for:
            return _sorted(facts.gpu.built_for)
    return ()


def _code(files: Sequence[FileRecord], objects: Mapping[str, CodeFacts]) -> tuple[str, ...]:
    targets: set[str] = set()
    for record in files:
        facts = objects.get(record.object)
        for module in facts.gpu.modules if facts and facts.gpu else ():
            targets |= {target.rstrip("af") for target in module.sass}
    return _sorted(f"{target[:-1]}.{target[-1]}" for target in targets if len(target) >= 2)


def _sorted(capabilities: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(capabilities), key=parse))
