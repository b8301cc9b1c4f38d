"""What CUDA libraries and frameworks say of themselves in their strings: NCCL, cuDNN, TensorFlow, PyTorch."""

import re

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.gpu.runtime import read_only_data

_NCCL = re.compile(rb"NCCL version (\d+\.\d+(?:\.\d+)?(?:\+cuda\d+\.\d+)?)")
_TENSORFLOW = re.compile(rb"\.(?:(?<=\0\d\.)|(?<=\0\d\d\.))\d\0+(?:\d\d?\.\d\0+){1,31}")
"""A list from the first point on: to look for one character is 30 times faster than to look for digits behind NUL."""
_BEFORE_POINT = 2
_TORCH = re.compile(rb"(?:(?:sm|compute)_\d{2,3}[af]?[ \0]){2,32}")


def built_for(elf: Elf, soname: str) -> tuple[str, ...]:
    """Compute capabilities in the lists that TensorFlow and PyTorch keep in these libraries, lowest first."""
    if soname.startswith(("libtensorflow_framework.so", "libtensorflow_cc.so")):
        found = _first(elf, _TENSORFLOW, _BEFORE_POINT)
        return tuple(found.strip(b"\0").decode().replace("\0\0", "\0").split("\0")) if found else ()
    if soname.startswith("libtorch_python.so"):
        found = _first(elf, _TORCH)
        names = re.findall(r"sm_(\d+)(\d)", found.decode()) if found else []
        return tuple(f"{major}.{minor}" for major, minor in names)
    return ()


def libraries(elf: Elf, soname: str) -> tuple[str, ...]:
    """Named CUDA libraries in this file with their version, as "NCCL 2.21.5+cuda12.4"."""
    if soname.startswith("libnccl.so") or elf.section(".nv_fatbin"):
        found = _first(elf, _NCCL)
        match = _NCCL.match(found) if found else None
        return (f"NCCL {match[1].decode()}",) if match else ()
    return ()


def _first(elf: Elf, pattern: re.Pattern[bytes], before: int = 0) -> bytes | None:
    """The first match in the read-only data, with some bytes before it."""
    for chunk in read_only_data(elf):
        match = pattern.search(chunk)
        if match:
            return chunk[max(match.start() - before, 0) : match.end()]
    return None
