"""What runs in an image: its command, through PATH, `env`, shebangs and shell wrappers, down to ELF files."""

from dataclasses import dataclass

from imgcheck.documents.image import ImageProfile


@dataclass(frozen=True)
class Roots:
    """The start of the closure."""

    command: tuple[str, ...] = ()
    """The words that are executed; empty where none is known."""
    entries: tuple[str, ...] = ()
    """Canonical paths of the ELF files that they execute, interpreters of scripts included."""
    imports: tuple[str, ...] = ()
    """Extension modules that a Python among `entries` can import."""
    everything: bool = False
    """No command is known, or it is a bare shell: users type their own, and every file counts as reached."""
    missing: tuple[str, ...] = ()
    """Words of the command, or `--entry` paths, that name no file of the image."""


def find_roots(image: ImageProfile, command: tuple[str, ...] | None = None, entries: tuple[str, ...] = ()) -> Roots:
    """What runs: `command` (the user's words after `--`) in place of CMD, ENTRYPOINT before it, and `entries`.

    `command` None means the image's own. `entries` (`--entry PATH`) replace the command where that is None, else
    they add to it.
    """
    raise NotImplementedError
