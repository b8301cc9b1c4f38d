"""Which of an image's platforms is taken: the one asked for, this machine's, or the nearest that exists."""

import os
import platform as machine
from functools import cache

from imgcheck.documents.image import Platform
from imgcheck.errors import UsageError

# `uname -m` to GOARCH, the names OCI uses (image-spec image-index.md; Go's internal/syslist).
_ARCHITECTURES = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "arm": "arm",
    "i386": "386",
    "i586": "386",
    "i686": "386",
    "386": "386",
    "ppc64le": "ppc64le",
    "ppc64": "ppc64",
    "s390x": "s390x",
    "riscv64": "riscv64",
    "loongarch64": "loong64",
    "loong64": "loong64",
    "mips64le": "mips64le",
}
_DEFAULT = Platform("linux", "amd64")
# The variant that an absent one means (containerd's platforms package normalises alike).
_IMPLIED_VARIANT = {"arm64": "v8", "amd64": "v1", "arm": "v7"}
_ANY_VARIANT = 100
"""Distance of a variant above an unspecified one: taken only where nothing plainer exists."""


def wanted_platform(requested: str | None) -> Platform:
    """The platform that `requested` ([OS/]ARCH[/VARIANT]) names, else this machine's, else linux/amd64."""
    if requested is None:
        return host_platform()
    parts = requested.lower().split("/")
    if len(parts) == 1:
        parts = ["linux", *parts]
    if len(parts) > 3 or not all(parts):
        raise UsageError(f"--platform {requested}: not OS/ARCH[/VARIANT]", hint="for example linux/arm64")
    if goarch(parts[1]) not in _ARCHITECTURES.values():
        raise UsageError(
            f"--platform {requested}: no architecture is known as {parts[1]!r}",
            hint=f"architectures are {', '.join(dict.fromkeys(_ARCHITECTURES.values()))}",
        )
    return Platform(parts[0], goarch(parts[1]), *parts[2:])


def goarch(machine_name: str) -> str:
    """OCI's name of an architecture that is named as `uname -m` or OCI does; an unknown one stays as it is."""
    return _ARCHITECTURES.get(machine_name, machine_name)


def platform_for(machine_name: str) -> str | None:
    """What to ask for with `wanted_platform` for a host whose machine has that name; None where OCI has none for it."""
    return machine_name if machine_name in _ARCHITECTURES else None


@cache
def host_platform() -> Platform:
    if os.name != "posix" or machine.machine() not in _ARCHITECTURES:
        return _DEFAULT
    name = machine.machine()
    return Platform("linux", _ARCHITECTURES[name], name[3:5] if name in ("armv6l", "armv7l") else "")


def distance(wanted: Platform, offered: Platform) -> int | None:
    """How far `offered` is from `wanted`: 0 the same, more for lower variants that run on it; None runs not at all.

    Where no variant is asked for, a higher one still matches: the CPU checks judge it by its code.
    """
    if (wanted.os, wanted.architecture) != (offered.os, offered.architecture):
        return None
    ours, theirs = _variant(wanted), _variant(offered)
    if ours == theirs:
        return 0
    if ours is None or theirs is None:
        return None if wanted.variant else _ANY_VARIANT
    if theirs < ours:
        return ours - theirs
    return None if wanted.variant else _ANY_VARIANT + theirs


def fallback_order(offered: Platform) -> int:
    """Order among platforms of which none was asked for: linux/amd64 first, then any."""
    return 0 if distance(_DEFAULT, offered) is not None else 1


def _variant(platform: Platform) -> int | None:
    text = platform.variant or _IMPLIED_VARIANT.get(platform.architecture, "v0")
    return int(text[1:]) if text[0] == "v" and text[1:].isascii() and text[1:].isdigit() and len(text) < 4 else None
