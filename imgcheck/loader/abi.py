"""What ld.so is built with per architecture: directories, cache flags, interpreters.

Sources: glibc's sysdeps/*/dl-cache.h and sysdeps/unix/sysv/linux/*/ldconfig.h (cache flags), shlib-versions
(interpreters), the platform ABIs, and Debian's multiarch tuples (wiki.debian.org/Multiarch/Tuples).
"""

from msgspec import Struct

ELF_LIBC6 = 3


class Abi(Struct, frozen=True):
    """One ELF machine as glibc knows it."""

    machine: str
    elf_class: int
    triplet: str
    """Debian's multiarch directory below /lib and /usr/lib."""
    lib: str
    """Directory below / and /usr elsewhere: lib64 or lib."""
    interpreter: str
    cache_flags: int
    """What an entry of ld.so.cache must carry; -1 takes any."""
    platform: str
    """AT_PLATFORM of the kernel: $PLATFORM."""


_ABIS = (
    Abi("x86_64", 64, "x86_64-linux-gnu", "lib64", "/lib64/ld-linux-x86-64.so.2", 0x300 | ELF_LIBC6, "x86_64"),
    Abi("x86_64", 32, "x86_64-linux-gnux32", "libx32", "/libx32/ld-linux-x32.so.2", 0x800 | ELF_LIBC6, "x86_64"),
    Abi("i386", 32, "i386-linux-gnu", "lib", "/lib/ld-linux.so.2", ELF_LIBC6, "i686"),
    Abi("aarch64", 64, "aarch64-linux-gnu", "lib64", "/lib/ld-linux-aarch64.so.1", 0xA00 | ELF_LIBC6, "aarch64"),
    Abi("arm", 32, "arm-linux-gnueabihf", "lib", "/lib/ld-linux-armhf.so.3", -1, "v7l"),
    Abi("ppc64le", 64, "powerpc64le-linux-gnu", "lib64", "/lib64/ld64.so.2", 0x500 | ELF_LIBC6, "power8"),
    Abi("ppc64", 64, "powerpc64-linux-gnu", "lib64", "/lib64/ld64.so.1", 0x500 | ELF_LIBC6, "power8"),
    Abi("s390x", 64, "s390x-linux-gnu", "lib64", "/lib/ld64.so.1", 0x400 | ELF_LIBC6, "z13"),
    Abi("riscv64", 64, "riscv64-linux-gnu", "lib64", "/lib/ld-linux-riscv64-lp64d.so.1", -1, "riscv64"),
    Abi("loongarch64", 64, "loongarch64-linux-gnu", "lib64", "/lib64/ld-linux-loongarch-lp64d.so.1", -1, "loongarch"),
)
_BY_NAME = {(abi.machine, abi.elf_class): abi for abi in _ABIS}


def abi_of(machine: str, elf_class: int) -> Abi:
    """The ABI of a machine; one without multiarch or known interpreter where it is not in the table."""
    known = _BY_NAME.get((machine, elf_class))
    return known or Abi(machine, elf_class, "", "lib64" if elf_class == 64 else "lib", "", -1, "")


def multiarch_directories() -> tuple[str, ...]:
    """Debian's directories of libraries, one for each ABI in the table."""
    return tuple(f"/usr/lib/{abi.triplet}" for abi in _ABIS)


def class_of(machine: str) -> int:
    """The usual ELF class of a machine, for files whose header is not at hand."""
    return next((abi.elf_class for abi in _ABIS if abi.machine == machine), 64)
