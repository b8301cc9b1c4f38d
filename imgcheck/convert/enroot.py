"""Enroot's container images: a squashfs with /etc/rc, /etc/environment and /etc/fstab."""

from imgcheck.convert.additions import Additions
from imgcheck.convert.launch import Launch, encode, words


def add_enroot(additions: Additions, launch: Launch) -> None:
    """Write the files that enroot reads when it starts a container."""
    additions.file("etc/rc", command_script(launch), 0o755)
    additions.file("etc/environment", environment(launch))
    additions.file("etc/fstab", b"")
    additions.file("etc/rc.local", b"")
    unfit = [name for name, value in launch.environment.items() if "\n" in name + value]
    if unfit:
        additions.notes.append(
            f"ENV {', '.join(unfit)} is left out: a line of /etc/environment holds one variable, whole"
        )
    if additions.tree.lookup("bin/sh") is None:
        additions.notes.append("enroot starts images by /etc/rc, a shell script, and this image has no /bin/sh")
    if not launch.environment.get("NVIDIA_VISIBLE_DEVICES"):
        additions.notes.append("the image does not set NVIDIA_VISIBLE_DEVICES: enroot and pyxis give it no GPU")


def environment(launch: Launch) -> bytes:
    lines = [f"{name}={value}\n" for name, value in launch.environment.items() if "\n" not in name + value]
    return encode("".join(lines))


def command_script(launch: Launch) -> bytes:
    """/etc/rc: WORKDIR, then ENTRYPOINT with the arguments, or CMD where there are none."""
    entrypoint = words(launch.entrypoint)
    return encode(
        "#!/bin/sh\n"
        f"cd {words((launch.working_directory,))} || exit 1\n"
        "unset OLDPWD\n"
        "[ -s /etc/rc.local ] && . /etc/rc.local\n"
        f"[ $# -gt 0 ] || set -- {words(launch.command if launch.entrypoint else launch.argv)}\n"
        f'exec {entrypoint} "$@"\n'
    )


def run_command(destination: str) -> str:
    """The command that starts it; enroot and pyxis take a path for a file only where it holds a slash."""
    return words(("enroot", "start", destination))
