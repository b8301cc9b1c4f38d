"""Files with real GPU code: PTX assembled by NVIDIA's own ptxas, in a fatbin as nvcc links it."""

import hashlib
import struct
from pathlib import Path

from tests.tools import cache_directory, kept, pypi_directory, run

_SOURCE = Path(__file__).parent / "sources" / "saxpy.ptx"
_PTXAS = "nvidia-cuda-nvcc-cu11==11.8.89"
"""The last ptxas that still assembles for Kepler, which the scenarios' GPUs are of."""
_PTX_ISA = {"8.0": "5.0", "9.0": "6.0", "9.2": "6.2"}
_PTX, _ELF = 1, 2
_FLAGS = 0x15
_E_VERSION = 20


def fatbin(sass: tuple[str, ...], ptx: tuple[str, ...], cuda: str) -> Path:
    """A fatbin with one container: machine code for `sass` ("37"), PTX for `ptx`, as the toolkit `cuda` writes it."""
    major, minor = (int(part) for part in _PTX_ISA[cuda].split("."))
    entries = [_entry(_ELF, target, 1, 7, _cubin(target, cuda)) for target in sass]
    entries += [_entry(_PTX, target, major, minor, _source(target, cuda).encode() + b"\0") for target in ptx]
    payload = b"".join(entries)
    data = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload
    return _kept(data, "code.fatbin")


def _entry(kind: int, target: str, major: int, minor: int, payload: bytes) -> bytes:
    padded = payload + bytes(-len(payload) % 8)
    head = struct.pack("<HHIQIIHHIII", kind, 0x0101, 64, len(padded), 0, 0, minor, major, int(target), 0, 0)
    return head + struct.pack("<QQQ", _FLAGS, 0, 0) + padded


def _source(target: str, cuda: str) -> str:
    return _SOURCE.read_text().replace("PTX_ISA", _PTX_ISA[cuda]).replace("TARGET", target)


def _cubin(target: str, cuda: str) -> bytes:
    source = _kept(_source(target, cuda).encode(), f"saxpy_{target}.ptx")
    ptxas = pypi_directory(_PTXAS) / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
    cubin = kept(source.with_suffix(".cubin"), lambda made: run(ptxas, f"-arch=sm_{target}", source, "-o", made))
    data = bytearray(cubin.read_bytes())
    # ptxas writes the release that it belongs to; the image is meant to come from an older one.
    struct.pack_into("<I", data, _E_VERSION, int(cuda.replace(".", "")))
    return bytes(data)


def _kept(data: bytes, name: str) -> Path:
    place = cache_directory("gpu-code", hashlib.sha256(data).hexdigest()[:24]) / name
    return kept(place, lambda made: made.write_bytes(data))


def embedded(fatbin_file: Path) -> str:
    """Assembly for the C compiler that puts a fatbin into the sections where the CUDA runtime registers it."""
    return f"""
__asm__(
  ".section .nv_fatbin,\\"a\\",@progbits\\n"
  ".balign 8\\n"
  "fatbin_data: .incbin \\"{fatbin_file}\\"\\n"
  ".section .nvFatBinSegment,\\"aw\\",@progbits\\n"
  ".balign 8\\n"
  ".int 0x466243b1, 1\\n"
  ".quad fatbin_data, 0\\n"
  ".text\\n");
"""
