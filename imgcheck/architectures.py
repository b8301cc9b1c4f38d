"""Names of architectures: those of files and kernels (`uname -m`), those of OCI (GOARCH), and other spellings.

Sources: Go's internal/syslist and image-spec's image-index.md for OCI's names, the kernel's UTS_MACHINE, Debian's
dpkg-architecture for ppc64el.
"""

from collections.abc import Mapping

MACHINES = ("x86_64", "i386", "aarch64", "arm", "ppc64le", "riscv64", "s390x", "loongarch64")
"""Those that a host can be described as."""
_MACHINE = {"amd64": "x86_64", "386": "i386", "arm64": "aarch64", "loong64": "loongarch64"}
_GOARCH = {machine: goarch for goarch, machine in _MACHINE.items()}
_SPELLINGS: Mapping[str, str] = {
    **{machine: machine for machine in MACHINES},
    **_MACHINE,
    "x86-64": "x86_64",
    "x64": "x86_64",
    "i586": "i386",
    "i686": "i386",
    "armv6l": "arm",
    "armv7l": "arm",
    "powerpc64le": "ppc64le",
    "ppc64el": "ppc64le",
}


def machine_of(goarch: str) -> str:
    """The machine, as Linkage.machine, that OCI calls `goarch`; where the two do not differ, or it is unknown, that."""
    return _MACHINE.get(goarch, goarch)


def goarch_of(machine: str) -> str:
    """OCI's name of a `machine`, as Linkage.machine; the inverse of `machine_of`."""
    return _GOARCH.get(machine, machine)


def spelt(name: str) -> str:
    """The machine that `name` stands for in any spelling; "" where none is known by it."""
    return _SPELLINGS.get(name, "")
