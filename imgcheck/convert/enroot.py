"""Enroot's container images: a squashfs with /etc/rc, /etc/environment and /etc/fstab (enroot, doc/image-format.md)."""

import re

from imgcheck.convert.additions import Additions, add_directory_of_config
from imgcheck.convert.launch import Launch, is_identifier, words
from imgcheck.documents.codec import as_bytes
from imgcheck.sources.settings import ENROOT_EMPTY

_REFERENCE = re.compile(r"\$(?=\{[A-Za-z_][A-Za-z0-9_]*\})")
_QUOTED = re.compile(r"[\"'].*[\"']\s*\Z")
_SHELL_VARIABLES = {"IFS", "OPTIND", "PPID"}


def add_enroot(additions: Additions, launch: Launch) -> None:
    """Write the files that enroot reads when it starts a container."""
    additions.file("etc/rc", command_script(launch), 0o755)
    additions.file("etc/environment", environment(launch))
    additions.file("etc/fstab", b"")
    additions.file("etc/rc.local", b"")
    home = launch.environment.get("HOME", "")
    if home.startswith("/"):
        add_directory_of_config(additions, home)
    additions.notes.extend(_notes(launch))
    if additions.tree.lookup("bin/sh") is None:
        additions.notes.append("enroot starts images by /etc/rc, a shell script, and this image has no /bin/sh")
    if additions.tree.lookup("etc/profile") is not None:
        additions.notes.append(
            "enroot's login shell reads the image's /etc/profile after ENV, which may change PATH: the printed command "
            "does without that shell; under pyxis the site's ENROOT_LOGIN_SHELL decides"
        )


def _notes(launch: Launch) -> list[str]:
    """What of the config enroot cannot keep."""
    notes = []
    unfit = [name for name in launch.environment if not _fits(name, launch.environment[name])]
    if unfit:
        notes.append(
            f"ENV {', '.join(map(repr, unfit))}: left out, as a line of /etc/environment holds one variable, "
            "whole, of a name that a shell can export and that does not begin with ENROOT_"
        )
    shells_own = sorted(_SHELL_VARIABLES & launch.environment.keys())
    if shells_own:
        notes.append(f"ENV {', '.join(shells_own)}: the shell that runs /etc/rc keeps these for itself")
    if launch.user not in ("", "root", "0"):
        notes.append(f"enroot runs it as you, not as USER {launch.user!r}")
    if not launch.environment.get("NVIDIA_VISIBLE_DEVICES"):
        notes.append("the image does not set NVIDIA_VISIBLE_DEVICES: enroot and pyxis give it no GPU")
    return notes


def _fits(name: str, value: str) -> bool:
    return is_identifier(name) and not name.startswith("ENROOT_") and "\n" not in value


def environment(launch: Launch) -> bytes:
    """NAME=VALUE lines in which enroot finds exactly the image's values.

    It replaces each ${NAME} by the host's variable, and takes away quotes round a whole value, once before its hooks
    and once after them. So a reference to a variable that no host has is put into what only looks like one, and a
    value in quotes gets two more pairs.
    """
    pairs = launch.environment.items()
    return as_bytes("".join(f"{name}={_written(value)}\n" for name, value in pairs if _fits(name, value)))


def _written(value: str) -> str:
    value = _REFERENCE.sub(f"${ENROOT_EMPTY}", value)
    return f'""{value}""' if _QUOTED.match(value) else value


def command_script(launch: Launch) -> bytes:
    """/etc/rc: WORKDIR, then ENTRYPOINT with the arguments, or CMD where there are none; LABELs as comments."""
    entrypoint = words(launch.entrypoint)
    labels = "".join(f"# {_one_line(f'{name} {value}')}\n" for name, value in launch.labels)
    return as_bytes(
        f"#!/bin/sh\n{labels}"
        f"cd {words((launch.working_directory,))} || exit 1\n"
        "unset OLDPWD\n"
        "[ -s /etc/rc.local ] && . /etc/rc.local\n"
        f"[ $# -gt 0 ] || set -- {words(launch.command if launch.entrypoint else launch.argv)}\n"
        f'exec {entrypoint} "$@"\n'
    )


def _one_line(text: str) -> str:
    return text.translate({0: " ", ord("\n"): " "})


def run_command(launch: Launch, destination: str) -> str:
    """The command that starts it; enroot and pyxis take a path for a file only where it holds a slash.

    Enroot's login shell would read the image's /etc/profile after ENV is set. It also sets HOME, which a program can
    expect: here it is the caller's, for whom enroot makes a directory in the container.
    """
    home = () if "HOME" in launch.environment else ("--env=HOME",)
    return words(("env", "ENROOT_LOGIN_SHELL=no", "enroot", "start", *home, destination))
