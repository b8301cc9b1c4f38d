"""Which container runtimes a host has in its PATH."""

import os
import re
import shutil
import subprocess

from imgcheck.documents.host import Fact, InstalledRuntime, known, unknown
from imgcheck.host.files import Root
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Runtime

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"
_TIME_LIMIT = 3.0
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+~]\w[\w.]*)?")


def probe_runtimes(root: Root, knowledge: Knowledge, driver: bool) -> Fact[tuple[InstalledRuntime, ...]]:
    """Runtimes whose every program is in PATH; those that inject a driver only where there may be one (`driver`).

    Versions are asked only of runtimes whose behaviour depends on them, and only on this machine.
    """
    directories = [part for part in os.environ.get("PATH", _PATH).split(":") if part] if root.live else _PATH.split(":")
    if not any(root.names(directory) is not None for directory in directories):
        return unknown("no directory of PATH can be read")
    places = {
        runtime.id: found
        for runtime in knowledge.runtimes.values()
        if runtime.programs and (driver or not runtime.injects_driver)
        if all(found := [_which(root, program, directories) for program in runtime.programs])
    }
    deciding = (name for name in places if _is_decisive(knowledge, knowledge.runtimes[name]))
    versions = _versions(root, [places[name][-1] for name in deciding])
    return known(
        tuple(InstalledRuntime(name, versions.get(found[-1], ""), found[-1]) for name, found in places.items()), "PATH"
    )


def _which(root: Root, program: str, directories: list[str]) -> str:
    if root.live:
        return shutil.which(program, path=":".join(directories)) or ""
    paths = (f"{directory}/{program}" for directory in directories)
    return next((path for path in paths if os.access(root.host_path(path), os.X_OK)), "")


def _is_decisive(knowledge: Knowledge, runtime: Runtime) -> bool:
    """Whether something depends on the version of a runtime's last program."""
    family, program = knowledge.family_of(runtime), runtime.programs[-1]
    return bool(runtime.changes) or program == family.filtering_program or program in family.takes_backticks_since


def _versions(root: Root, programs: list[str]) -> dict[str, str]:
    """Program path to its version; all are asked at once."""
    if not root.live:
        return {}
    running: dict[str, subprocess.Popen[str]] = {}
    for path in dict.fromkeys(programs):
        try:
            running[path] = subprocess.Popen(
                [path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
            )
        except OSError:
            continue
    return {path: _version(root, path, process) for path, process in running.items()}


def _version(root: Root, path: str, process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        root.late.append(path)
        return ""
    match = _VERSION.search(output)
    return match[0] if match else ""
