"""`.singularity.d`: how Apptainer and Singularity find an image's environment, commands and labels.

Apptainer reads the environment scripts and the runscript with a shell of its own, before anything of the image runs;
Singularity before 3.6 runs `actions/*` with the image's /bin/sh. Both see the same texts here.
"""

import json

from imgcheck.convert.additions import Additions
from imgcheck.convert.launch import Launch, is_identifier, words
from imgcheck.documents.codec import as_bytes

_ROOT = ".singularity.d"
_HEADER = "#!/bin/sh\n"
_SOURCE_ENVIRONMENT = """\
for file in /.singularity.d/env/*.sh; do
    [ -f "$file" ] && . "$file"
done
"""
_ACTIONS = {
    "exec": 'exec "$@"\n',
    "run": """\
if [ -n "${SINGULARITY_APPNAME:-}" ]; then
    exec "/scif/apps/$SINGULARITY_APPNAME/scif/runscript" "$@"
fi
exec /.singularity.d/runscript "$@"
""",
    "shell": """\
for shell in "${SINGULARITY_SHELL:-}" /bin/bash /bin/sh; do
    [ -n "$shell" ] && [ -x "$shell" ] && exec "$shell" "$@"
done
echo "this image has no shell" >&2
exit 1
""",
    "start": "exec /.singularity.d/startscript\n",
    "test": """\
[ -x /.singularity.d/test ] && exec /.singularity.d/test "$@"
exit 0
""",
}
# The runtime stops the instance's first process until this signal says that its place is set up.
_BEFORE = {"start": "kill -CONT 1\n"}

_BASE = "# The base environment: an image from layers brings its own in 10-docker2singularity.sh.\n"
_CUSTOM = "# Variables of this site or user, one `export NAME=value` each.\n"
_APPS = """\
if [ -n "${SINGULARITY_APPNAME:-}" ]; then
    export SINGULARITY_APPNAME
    for directory in "/scif/apps/$SINGULARITY_APPNAME/bin"; do
        [ -d "$directory" ] && export PATH="$directory:$PATH"
    done
    for directory in "/scif/apps/$SINGULARITY_APPNAME/lib"; do
        [ -d "$directory" ] && export LD_LIBRARY_PATH="$directory:${LD_LIBRARY_PATH:-}"
    done
fi
"""
# Apptainer sets what --env and --nv ask for right after it has read this file, and only then.
_LAST = """\
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"
export PS1="${PS1:-Apptainer> }"
"""
_RUNTIME = """\
export PATH="${SING_USER_DEFINED_PATH:-${SING_USER_DEFINED_PREPEND_PATH:+$SING_USER_DEFINED_PREPEND_PATH:}$PATH\
${SING_USER_DEFINED_APPEND_PATH:+:$SING_USER_DEFINED_APPEND_PATH}}"
unset SING_USER_DEFINED_PATH SING_USER_DEFINED_PREPEND_PATH SING_USER_DEFINED_APPEND_PATH
"""
# Apptainer interprets a runscript itself, so that an image without /bin/sh runs too, where it finds exactly this line.
_INTERPRETED = 'if false; then\neval "set ${SINGULARITY_OCI_RUN}"\nfi\n'
_SHELL_VARIABLES = {"EUID", "GID", "IFS", "OPTIND", "UID"}
_SHORTCUTS = ("exec", "run", "shell", "test")


def add_singularity(additions: Additions, launch: Launch) -> None:
    """Replace whatever the image ships as `.singularity.d` and add ours."""
    former = additions.tree.lookup(_ROOT, follow_last=False)
    if former is not None:
        additions.notes.append(f"/{_ROOT} was a {former.kind} in the image and was replaced")
        additions.remove(_ROOT)
    for directory in ("", "/actions", "/env", "/libs"):
        additions.directory(_ROOT + directory)
    for path, text in scripts(launch).items():
        additions.file(f"{_ROOT}/{path}", text, 0o755)
    additions.file(f"{_ROOT}/env/94-appsbase.sh", b"", 0o755)
    additions.file(f"{_ROOT}/labels.json", labels(launch))
    additions.link_if_missing("singularity", f"{_ROOT}/runscript")
    additions.link_if_missing("environment", f"{_ROOT}/env/90-environment.sh")
    for name in _SHORTCUTS:
        additions.link_if_missing(f".{name}", f"{_ROOT}/actions/{name}")
    additions.notes.extend(_notes(launch))


def scripts(launch: Launch) -> dict[str, bytes]:
    """The scripts by their path under `.singularity.d`."""
    found = {
        "env/01-base.sh": (_HEADER + _BASE).encode(),
        "env/10-docker2singularity.sh": environment_script(launch),
        "env/90-environment.sh": (_HEADER + _CUSTOM).encode(),
        "env/95-apps.sh": (_HEADER + _APPS).encode(),
        "env/99-base.sh": (_HEADER + _LAST).encode(),
        "env/99-runtimevars.sh": (_HEADER + _RUNTIME).encode(),
        "runscript": runscript(launch),
        "startscript": _HEADER.encode(),
    }
    for name, text in _ACTIONS.items():
        found[f"actions/{name}"] = (_HEADER + _BEFORE.get(name, "") + _SOURCE_ENVIRONMENT + text).encode()
    return found


def environment_script(launch: Launch) -> bytes:
    """ENV as exports. Runtimes read this after the host's variables are gone, so the image's value always holds."""
    lines = [f"export {name}={words((value,))}\n" for name, value in launch.environment.items() if is_identifier(name)]
    return as_bytes(_HEADER + "".join(lines))


def runscript(launch: Launch) -> bytes:
    """ENTRYPOINT and CMD: arguments replace CMD, as in Docker, and nothing is expanded a second time."""
    text = _HEADER
    default = launch.command if launch.entrypoint else launch.argv
    if default:
        text += f"if [ $# -eq 0 ]; then\n    set -- {words(default)}\nfi\n"
    if launch.entrypoint:
        text += f'set -- {words(launch.entrypoint)} "$@"\n'
    return as_bytes(text + _INTERPRETED + 'exec "$@"\n')


def labels(launch: Launch) -> bytes:
    """LABELs as Apptainer's `inspect` shows them."""
    found = dict(launch.labels)
    found.setdefault("org.label-schema.schema-version", "1.0")
    return json.dumps(found, indent=1, sort_keys=True).encode()


def inspect_metadata(launch: Launch) -> bytes:
    """What `apptainer inspect` shows of a SIF without starting it."""
    found = scripts(launch)
    attributes = {
        "labels": json.loads(labels(launch)),
        "deffile": "",
        "runscript": found["runscript"].decode("utf-8", "replace"),
        "startscript": found["startscript"].decode(),
        "environment": {
            f"/{_ROOT}/{path}": text.decode("utf-8", "replace")
            for path, text in found.items()
            if path.startswith("env/")
        },
    }
    return json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True).encode()


def run_command(launch: Launch, destination: str) -> str:
    """The command that starts it. Apptainer starts in the caller's directory unless told otherwise."""
    return words(("apptainer", "run", "--pwd", launch.working_directory, destination))


def _notes(launch: Launch) -> list[str]:
    notes = []
    unfit = [name for name in launch.environment if not is_identifier(name)]
    if unfit:
        notes.append(f"ENV {', '.join(map(repr, unfit))}: not a name that a shell can export, left out")
    shells_own = sorted(_SHELL_VARIABLES & launch.environment.keys())
    if shells_own:
        notes.append(f"ENV {', '.join(shells_own)}: Apptainer's shell keeps these for itself, so they are not set")
    if launch.working_directory != "/":
        notes.append(f"Apptainer does not know WORKDIR: start it with --pwd {words((launch.working_directory,))}")
    if launch.user not in ("", "root", "0"):
        notes.append(f"Apptainer runs it as you, not as USER {launch.user!r}")
    return notes
