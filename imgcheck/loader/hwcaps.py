"""The directories for better CPUs that ld.so opens on a host."""

from imgcheck.documents.host import HostProfile
from imgcheck.knowledge import Knowledge, cpus

# sysdeps/x86/cpu-features.c until glibc 2.36 sets these for CPUs of Intel alone, whatever others can do.
_LEGACY = (("x86-64-v3", "haswell"), ("x86-64-v4", "avx512_1"))


KINDS: tuple[tuple[str, ...], ...] = (
    (),
    ("x86-64-v2",),
    ("x86-64-v3", "x86-64-v2"),
    ("x86-64-v3", "x86-64-v2", "haswell"),
    ("x86-64-v4", "x86-64-v3", "x86-64-v2"),
    ("x86-64-v4", "x86-64-v3", "x86-64-v2", "haswell", "avx512_1"),
)
"""All that `hwcaps_of` answers."""


def hwcaps_of(host: HostProfile, knowledge: Knowledge) -> tuple[str, ...]:
    """Names below glibc-hwcaps, best first, then those of the search before glibc 2.37; empty where not known.

    A described CPU does not tell its vendor, so that files in legacy directories are not taken for it.
    """
    if host.cpu.architecture.value != "x86_64" or not host.cpu.features.value:
        return ()
    level = cpus.level_of(knowledge, host.cpu.features.value)
    levels = cpus.LEVELS[cpus.LEVELS.index(level) : 0 : -1]
    intel = "intel" in (host.cpu.model.value or "").lower()
    return (*levels, *(name for needed, name in _LEGACY if intel and needed in levels))
