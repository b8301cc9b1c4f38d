"""This machine, or a captured one, as a HostProfile."""

import os

from imgcheck.documents.host import SCHEMA_VERSION, Fact, HostProfile, absent, known, unknown
from imgcheck.host.amd import with_amd
from imgcheck.host.cpu import probe_cpu
from imgcheck.host.fabrics import probe_fabrics
from imgcheck.host.files import Root
from imgcheck.host.libraries import Libraries, injectable
from imgcheck.host.nvidia import probe_nvidia
from imgcheck.host.runtimes import probe_runtimes
from imgcheck.knowledge import Knowledge
from imgcheck.loader.glibc import LIBC, named_version, newest_node

_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")


def probe_host(root: str = "/", knowledge: Knowledge | None = None, late: list[str] | None = None) -> HostProfile:
    """What the machine offers. Asks no GPU tool, needs no root, and never fails: what cannot be read is unknown.

    `root` other than "/" is a directory with a captured machine's proc/, sys/, etc/ and so on; then no system call or
    program of this machine is asked. What was asked and did not answer in time is added to `late`: that it is unknown
    says nothing of the next time.
    """
    files = Root(root, late)
    rules = knowledge or Knowledge()
    cpu = probe_cpu(files, rules)
    libraries = Libraries(files, cpu.architecture.value or "")
    nvidia = probe_nvidia(files, rules, libraries)
    driver = not nvidia.driver.userland.absent
    return HostProfile(
        schema_version=SCHEMA_VERSION,
        name=_name(files),
        cpu=cpu,
        kernel=_kernel(files),
        glibc=_glibc(files, libraries),
        driver=nvidia.driver,
        gpus=with_amd(files, nvidia.gpus),
        libraries=injectable(files, rules, libraries, driver),
        runtimes=probe_runtimes(files, rules, driver),
        distribution=_distribution(files),
        fabrics=probe_fabrics(files),
        vsyscall=_vsyscall(files),
    )


def _name(root: Root) -> str:
    if root.live:
        return os.uname().nodename
    captured = root.text("/proc/sys/kernel/hostname") or root.text("/etc/hostname") or ""
    return captured.strip() or root.path.name


def _kernel(root: Root) -> Fact[str]:
    if root.live:
        return known(os.uname().release, "uname")
    release = (root.text("/proc/sys/kernel/osrelease") or "").strip()
    return known(release, "/proc/sys/kernel/osrelease") if release else unknown("/proc/sys/kernel/osrelease is absent")


def _vsyscall(root: Root) -> Fact[bool]:
    maps = root.text("/proc/self/maps") if root.live else None
    return known("[vsyscall]" in maps, "/proc/self/maps") if maps else unknown("a captured machine has no maps")


def _glibc(root: Root, libraries: Libraries) -> Fact[str]:
    if root.live and (stated := _own_glibc()):
        return stated
    path = libraries.find(LIBC)
    if path:
        version = named_version(root.real(path)) or _version_inside(root, path)
        return known(version, path) if version else unknown(f"{path} does not tell its version")
    if any(name.startswith("ld-musl-") for name in root.names("/lib") or ()):
        return absent("the C library is musl")
    return unknown("libc.so.6 is not where the loader looks")


def _own_glibc() -> Fact[str] | None:
    """The C library of this process, which is the system's."""
    try:
        stated = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    name, _, version = stated.partition(" ")
    return known(version, "gnu_get_libc_version") if name == "glibc" and version else None


def _version_inside(root: Root, path: str) -> str:
    """The version that the C library at `path` tells by what it defines; "" where it cannot be read."""
    from imgcheck.binaries.elf import Elf
    from imgcheck.binaries.linkage.read import read_linkage
    from imgcheck.errors import ElfError

    mapped = root.mapped(path)
    if mapped is None:
        return ""
    try:
        return newest_node(read_linkage(Elf(mapped)))
    except ElfError:
        return ""


def _distribution(root: Root) -> Fact[str]:
    for path in _OS_RELEASE:
        for line in (root.text(path) or "").splitlines():
            if line.startswith("PRETTY_NAME="):
                return known(line.partition("=")[2].strip().strip("\"'"), path)
    return unknown("there is no os-release")
