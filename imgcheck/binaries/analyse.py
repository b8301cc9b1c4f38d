"""One file's bytes -> CodeFacts, by whichever engines the bytes call for."""

import hashlib
import re
import struct
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from imgcheck.binaries.kernels import LIBRARY as KERNELS
from imgcheck.documents.facts import CodeFacts, GpuCode
from imgcheck.errors import ElfError, ImgcheckError
from imgcheck.knowledge.store import rules_directory

if TYPE_CHECKING:
    from imgcheck.binaries.elf import Elf

ELF_MAGIC = b"\x7fELF"
FATBIN_MAGIC = b"\x50\xed\x55\xba"
AR_MAGIC = b"!<arch>\n"
_FATBIN = re.compile(re.escape(FATBIN_MAGIC))
_LIBRARY = re.compile(r"\.so(?:\.\d[^/]*)?$")
PTX_SUFFIX = ".ptx"
_NO_HOST_CODE = frozenset({"cuda", "amdgpu"})

ENGINES = ("gpu", "isa", "linkage")

T = TypeVar("T")


def looks_like_code(head: bytes, path: str) -> bool:
    """Whether the file at `path` that begins with `head` (at least 8 bytes, where it has them) may hold code."""
    if head[:4] in (ELF_MAGIC, FATBIN_MAGIC) or head[:8] in (AR_MAGIC, b".version") or head[:3] == b"//\n":
        return True
    return bool(head) and path.endswith(PTX_SUFFIX)


def is_named_as_library(path: str) -> bool:
    """Whether a loader may take the file at `path` for a library, by its name."""
    return _LIBRARY.search(path) is not None


@cache
def engine_versions() -> dict[str, str]:
    """A digest of the code and data of each engine that `analyse` asks: facts of another digest are not comparable.

    Taken from the files themselves, so that no change of an engine can be kept under the old name.
    """
    analysis = [path for folder in ("analysis", "cpus") for path in sorted((rules_directory() / folder).glob("*.toml"))]
    return {engine: _digest([*sources(engine), *analysis]) for engine in ENGINES}


def sources(engine: str) -> list[Path]:
    """The code of an engine, with what all of them share."""
    package = Path(__file__).resolve().parent
    folders = (package.parent / "knowledge", package / "kernels", package / engine)
    return [*sorted(package.glob("*.py")), *(path for folder in folders for path in _sources(folder))]


def _sources(folder: Path) -> list[Path]:
    return [path for kind in ("*.py", "*.[ch]") for path in sorted(folder.rglob(kind))]


def require_engines() -> None:
    """Raise ImgcheckError where their compiled part is missing, as in a source tree that was never installed."""
    if not KERNELS.exists():
        raise ImgcheckError(
            f"{KERNELS}: missing, without which no file can be analysed",
            "install the checkout: pip install DIRECTORY, or, to change it, pip install --editable DIRECTORY",
        )


def load_engines() -> None:
    """Import the engines and build the tables for the machine of most images, which takes longer than most files."""
    for engine in ("gpu.engine", "isa.engine", "isa.x86.engine", "linkage.read"):
        import_module(f"imgcheck.binaries.{engine}")
    import_module("imgcheck.binaries.isa.x86.encodings").encodings(64)


def _digest(files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        total.update(path.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def analyse(data: memoryview, isa: bool = True) -> CodeFacts | None:
    """What the engines say of `data`; None where it is no code.

    Code is an ELF file, a standalone fatbin, cubin or PTX file, or an ar archive with GPU code in its members (host
    code in archives does not run, so an archive without GPU code is None). Never raises on hostile bytes: what
    could not be read stands in `CodeFacts.error`. MemoryError where there is too little memory, which says nothing of
    the bytes. `isa` False leaves the instruction sets out.
    """
    head = bytes(data[:8])
    if head[:4] == ELF_MAGIC:
        return _analyse_elf(data, isa)
    if head != AR_MAGIC or _FATBIN.search(data):
        errors: list[str] = []
        gpu = _attempt(errors, "GPU code", lambda: _read_gpu(data, None))
        return CodeFacts(len(data), gpu=gpu, error="; ".join(errors)) if gpu or errors else None
    return None


def _analyse_elf(data: memoryview, isa: bool) -> CodeFacts:
    from imgcheck.binaries.elf import Elf
    from imgcheck.binaries.isa.engine import analyse_isa
    from imgcheck.binaries.linkage.binding import read_symbols
    from imgcheck.binaries.linkage.read import read_linkage

    try:
        elf = Elf(data)
    except ElfError as error:
        return CodeFacts(len(data), error=error.message)
    errors = _damage(elf)
    gpu = _attempt(errors, "GPU code", lambda: _read_gpu(data, elf))
    if elf.machine in _NO_HOST_CODE:
        return CodeFacts(len(data), gpu=gpu, error="; ".join(errors))
    linkage = _attempt(errors, "linkage", lambda: read_linkage(elf))
    sets = _attempt(errors, "instruction sets", lambda: analyse_isa(elf)) if isa else None
    symbols = _attempt(errors, "symbols", lambda: read_symbols(elf)) if linkage else None
    return CodeFacts(len(data), linkage, sets, gpu, symbols, "; ".join(errors))


def _read_gpu(data: memoryview, elf: "Elf | None") -> GpuCode | None:
    from imgcheck.binaries.gpu.engine import read_gpu

    return read_gpu(data, elf)


def _attempt(errors: list[str], what: str, read: Callable[[], T]) -> T | None:
    # A file can be made to defeat one engine; that must cost that answer alone, and be said.
    try:
        return read()
    except ElfError as error:
        errors.append(f"{what}: {error.message}")
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        errors.append(f"{what} could not be read ({type(error).__name__}: {error})")
    return None


def _damage(elf: "Elf") -> list[str]:
    """Why the loader would refuse the file although its header is sound; a file cut off behind that is unharmed."""
    from imgcheck.binaries.elf import ET_DYN, ET_EXEC, PT_LOAD

    if elf.type not in (ET_EXEC, ET_DYN):
        return []
    if not elf.segments:
        return ["damaged ELF file: it has no program headers, they lie outside it, or are more than Linux reads"]
    end = max((s.offset + s.filesz for s in elf.segments if s.type == PT_LOAD), default=0)
    # Separate debug files keep program headers that describe the stripped file; their sections are whole.
    if end > len(elf.data) and not elf.sections:
        return [f"truncated ELF file: its segments end at byte {end}, the file at byte {len(elf.data)}"]
    return []
