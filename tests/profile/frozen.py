"""Programs as PyInstaller makes them: with its own writer of archives, or by a run of its own."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.tools import compile_c

NEW, OLD = ("pyi-contents-directory _internal",), ()
"""Options that the starter of PyInstaller 6 finds in the archive, and of those before."""


def frozen(
    *members: tuple[str, bytes, str], options: Sequence[str] = NEW, python: str = "libpython3.11.so.1.0"
) -> bytes:
    """A program with an archive of (name, content, type) and of `options` behind it."""
    from PyInstaller.archive.writers import CArchiveWriter

    starter = compile_c("int main(void) { return 0; }").read_bytes()
    with tempfile.TemporaryDirectory() as directory:
        entries = [(option, None, False, "o") for option in options]
        for number, (name, data, kind) in enumerate(members):
            file = Path(directory, str(number))
            file.write_bytes(data)
            entries.append((name, data.decode() if kind == "n" else str(file), kind != "n", kind))
        target = Path(directory, "archive")
        CArchiveWriter(str(target), entries, python)
        return starter + target.read_bytes()


def pyinstaller(directory: Path, script: str, *options: str) -> Path:
    """What a run of PyInstaller on the text of a script leaves in `directory`: a program, or a directory with one."""
    directory.mkdir(parents=True)
    (directory / "app.py").write_text(script)
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", *options, "app.py"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=300)
    return directory / "dist/app"
