"""What the oracle runs: own sources in many builds, Python packages, and programs of Debian."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.variants import is_variant
from tests.isa.programs import PROGRAMS
from tests.tools import cache_directory, compile_c, kept, run

MARCHES = ("x86-64", "nehalem", "sandybridge", "haswell", "skylake-avx512")
STYLES = {
    "O2-stripped": ("-O2", "-s"),
    "O3": ("-O3",),
    "O0": ("-O0",),
    "static": ("-O2", "-static", "-s"),
}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": str(cache_directory("oracle", "home")), "LANG": "C.UTF-8"}
"""Variables such as OPENBLAS_CORETYPE choose kernels whatever the CPU is; none may leak into a run."""
_HERE = Path(__file__).parent
_INPUTS = {
    "fasta": b"".join(b">s%d\n%s\n" % (n, (b"ACGTTGCATCGATCGGATC"[n:] * 30)[:300]) for n in range(6)),
    "raw": bytes(range(256)) * 24,
    "ppm": b"P6\n16 16\n255\n" + bytes(range(256)) * 3,
    "pov": b"camera { location <0,0,-3> look_at 0 } light_source { <2,4,-3> 1 } sphere { 0, 1 pigment { rgb 1 } }\n",
    "go": b"package main\n\nfunc main() { println(1) }\n",
}


class UnusableError(Exception):
    """A workload that does not even run on this machine."""


@dataclass(frozen=True)
class Case:
    """Something to run: the command, and the ELF files that the run loads."""

    command: tuple[str, ...]
    files: tuple[Path, ...]
    libraries: str = ""
    """LD_LIBRARY_PATH of the run."""

    @property
    def environment(self) -> dict[str, str]:
        return ENVIRONMENT | ({"LD_LIBRARY_PATH": self.libraries} if self.libraries else {})


@dataclass(frozen=True)
class Entry:
    """A line of the corpus: its name, its half, and what installs or builds it. `make` raises UnusableError."""

    name: str
    half: str
    make: Callable[[], Case]


def _half(entry: dict, name: str) -> str:
    """The half that an entry names, else the one that a hash of its name picks."""
    return entry.get("half") or ("tuning", "held-out")[hashlib.sha256(name.encode()).digest()[0] % 2]


def _listed(kind: str) -> list[dict]:
    return tomllib.loads((_HERE / f"{kind}s.toml").read_text(encoding="utf-8"))[kind]


def builds() -> Iterator[Entry]:
    """Every source of tests/isa (looked at) and of this directory (held out) in every build."""
    held_out = {path.name: path.read_text() for path in sorted((_HERE / "sources").iterdir())}
    for half, sources in (("tuning", PROGRAMS), ("held-out", held_out)):
        for name, march, style in product(sources, MARCHES, STYLES):
            flags = (f"-march={march}", *STYLES[style])
            yield Entry(f"{name} {flags[0]} {style}", half, partial(_build, name, sources[name], flags))


def _build(name: str, source: str, flags: tuple[str, ...]) -> Case:
    cpp = name.endswith(".cpp")
    program = compile_c(source, *flags, compiler="g++" if cpp else "gcc", language="c++" if cpp else "c")
    return Case((str(program),), (program,))


def programs() -> Iterator[Entry]:
    for entry in _listed("program"):
        name = " ".join(entry["command"])
        yield Entry(name, _half(entry, name), partial(_debian, entry.get("package", ""), entry["command"]))


def _debian(package: str, words: list[str]) -> Case:
    root = _unpacked(package) if package else Path("/")
    libraries = ":".join(map(str, _library_directories(root))) if package else ""
    command = _with_inputs(words)
    path = _program(root, command[0])
    case = Case((str(path), *command[1:]), (), libraries)
    done = subprocess.run(case.command, capture_output=True, env=case.environment, timeout=600)
    if done.returncode:
        raise UnusableError(f"status {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return Case(case.command, _linked(path, case.environment), libraries)


def _unpacked(package: str) -> Path:
    """The files of a Debian package and of what it depends on and this system lacks, in a directory of their own."""

    def make(root: Path) -> None:
        archives = root.parent / "archives"
        (archives / "partial").mkdir(parents=True)
        fetch = ("--no-install-recommends", "--download-only", "--reinstall", "-y", "-q")
        run("apt-get", *fetch, "-o", f"Dir::Cache::archives={archives}", "install", package)
        for archive in archives.glob("*.deb"):
            run("dpkg", "-x", archive, root)

    return kept(cache_directory("oracle", "debian") / package, make)


def _library_directories(root: Path) -> list[Path]:
    """Where libraries lie in an unpacked package: the usual directories, and those one below (BLAS, PulseAudio)."""
    usual = [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"]
    below = [path.parent for place in [*usual, root / "usr/lib"] for path in place.glob("*/lib*.so*")]
    return list(dict.fromkeys([*(place for place in usual if place.exists()), *below]))


def _program(root: Path, name: str) -> Path:
    if root == Path("/"):
        installed = shutil.which(name)
        if installed is None:
            raise UnusableError("not installed")
        return Path(installed).resolve()
    found = [path for path in sorted(root.rglob(name)) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    if not found:
        raise UnusableError(f"no such program in {root}")
    return found[0].resolve()


def _with_inputs(command: list[str]) -> list[str]:
    place = cache_directory("oracle", "inputs")
    for name, data in _INPUTS.items():
        if not (place / name).exists():
            (place / name).write_bytes(data)
    paths = {name: str(place / name) for name in (*_INPUTS, "out")}
    return [word.format(**paths) if "{" in word else word for word in command]


def _linked(path: Path, environment: dict[str, str]) -> tuple[Path, ...]:
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, env=environment)
    libraries = [Path(word).resolve() for word in done.stdout.split() if word.startswith("/")]
    return tuple(dict.fromkeys([path, *libraries]))


def packages() -> Iterator[Entry]:
    for entry in _listed("package"):
        yield Entry(entry["name"], _half(entry, entry["name"]), partial(_package, entry))


def _package(entry: dict) -> Case:
    place = cache_directory("oracle") / entry["name"]
    if not place.exists() or not any(place.iterdir()):
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            options = ("-q", "--only-binary", ":all:", "--no-compile", "--target", f"{work}/files")
            wanted = entry["name"] + entry.get("version", "")
            run(sys.executable, "-m", "pip", "install", *options, wanted, *entry.get("needs", ()))
            Path(work, "files").rename(place)
    start = f"import sys; sys.path[:0] = [{str(place)!r}]\n"
    # -S: the interpreter's own site-packages must not stand in for what was installed.
    command = (str(Path(sys.executable).resolve()), "-S", "-c", start + entry["code"])
    return Case(command, _mapped(command))


def _mapped(command: tuple[str, ...]) -> tuple[Path, ...]:
    """The ELF files that the workload maps when it runs on this machine."""
    show = "\nprint('\\n'.join({l.split()[-1] for l in open('/proc/self/maps') if ' r-xp ' in l and '/' in l}))"
    program = [*command[:-1], command[-1] + show]
    done = subprocess.run(program, capture_output=True, text=True, env=ENVIRONMENT, timeout=600)
    if done.returncode:
        raise UnusableError(done.stderr.strip()[-300:])
    lines = done.stdout.splitlines()
    knowledge = Knowledge()
    return tuple(Path(line) for line in lines if line.startswith("/") and not is_variant(knowledge, line))
