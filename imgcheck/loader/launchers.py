"""Programs that run the command in their arguments (env, tini, gosu, nice): where in these the command begins."""

import re
from itertools import pairwise

from msgspec import Struct, structs

from imgcheck.loader.environment import LOADER_VARIABLES
from imgcheck.loader.execline import becomes


class Launcher(Struct, frozen=True):
    """How a launcher's command line is built."""

    operands: int = 0
    """Words before the command that are no options: a user, a duration."""
    valued: tuple[str, ...] = ()
    """Options whose value is a word of its own."""
    flags: tuple[str, ...] = ()
    """Options without a value."""
    known: bool = True
    """False where there are too many options to list: the command is the first word that is a program."""
    optional: bool = False
    """It does so only where one of its words is a program."""
    verbs: tuple[str, ...] = ()
    """It does so only behind one of these words, where there are some."""
    own: tuple[str, ...] = ()
    """Directories that it puts before PATH, from the working directory."""


class Launched(Struct, frozen=True):
    """What a launcher starts."""

    words: tuple[str, ...] = ()
    """From the command on."""
    assignments: tuple[str, ...] = ()
    """`NAME=VALUE` that it puts in the environment."""
    removed: tuple[str, ...] = ()
    """Variables that it takes out of the environment."""
    emptied: bool = False
    """It takes out all of them."""
    directory: str = ""
    """The working directory that it changes to."""
    by_loader: bool = False
    """A dynamic loader starts it that is named, in place of the one that the command asks for."""
    certain: bool = True
    """The command is the first of `words`; else an option's value may stand before it."""
    optional: bool = False
    """As Launcher.optional."""
    own: tuple[str, ...] = ()
    """As Launcher.own."""
    environment: str = ""
    """Conda's environment in which it does so, by its name or its directory."""


_VAGUE = Launcher(known=False)
_OPTIONAL = Launcher(known=False, optional=True)
_RUN = Launcher(known=False, verbs=("run",))
_RUN_IN_PROJECT = Launcher(known=False, verbs=("run",), own=(".venv/bin",))
_EXEC = Launcher(known=False, verbs=("exec",))
_CONDA = Launcher(
    valued=("-e", "--env", "-n", "--name", "-p", "--prefix", "-r", "--root-prefix", "--cwd"),
    flags=("-a", "--no-capture-output", "--live-stream", "--dev", "-v", "--debug-wrapper-scripts", "-d", "--detach"),
    verbs=("run",),
)
_INIT = Launcher(valued=("-e", "-p"), flags=("-g", "-s", "-v", "-vv", "-vvv", "-w"))
# From the manual page of each; of tini, dumb-init, with-contenv (s6-overlay) and setuser (baseimage) from their README.
LAUNCHERS: dict[str, Launcher] = {
    "aprun": _VAGUE,
    "authbind": _VAGUE,
    "bundle": _EXEC,
    "catatonit": Launcher(),
    "catchsegv": Launcher(),
    "chamber": _EXEC,
    "choom": _VAGUE,
    "chpst": _VAGUE,
    "chronic": _VAGUE,
    "chroot": _VAGUE,
    "chrt": Launcher(1, ("-D", "-P", "-T"), ("-b", "-f", "-i", "-o", "-r")),
    "compute-sanitizer": _OPTIONAL,
    "conda": _CONDA,
    "cuda-gdb": _OPTIONAL,
    "cuda-memcheck": _OPTIONAL,
    "dbus-run-session": _OPTIONAL,
    "ddtrace-run": _OPTIONAL,
    "direnv": _EXEC,
    "docker-init": _INIT,
    "dockerize": _OPTIONAL,
    "doppler": _RUN,
    "dotenv": _RUN,
    "dumb-init": Launcher(valued=("-r", "--rewrite"), flags=("-c", "-v", "--single-child", "--verbose")),
    "env": Launcher(
        valued=("-u", "--unset", "-C", "--chdir", "-a", "--argv0"),
        flags=("-", "-i", "--ignore-environment", "-v", "--debug"),
    ),
    "envdir": Launcher(1),
    "envuidgid": Launcher(1),
    "fakeroot": _OPTIONAL,
    "fghack": Launcher(),
    "find": _OPTIONAL,
    "flock": _VAGUE,
    "gdb": _OPTIONAL,
    "gosu": Launcher(1),
    "hatch": _RUN,
    "horovodrun": _VAGUE,
    "hpcrun": _OPTIONAL,
    "ibrun": _VAGUE,
    "ifne": _VAGUE,
    "ionice": Launcher(valued=("-c", "-n", "-p", "-P", "-u")),
    "jsrun": _VAGUE,
    "lckdo": _VAGUE,
    "likwid-mpirun": _OPTIONAL,
    "likwid-perfctr": _OPTIONAL,
    "likwid-pin": _OPTIONAL,
    "linux32": _VAGUE,
    "linux64": _VAGUE,
    "ltrace": _VAGUE,
    "mamba": _CONDA,
    "memray": _OPTIONAL,
    "micromamba": _CONDA,
    "mpiexec": _VAGUE,
    "mpiexec.hydra": _VAGUE,
    "mpirun": _VAGUE,
    "ncu": _VAGUE,
    "newrelic-admin": Launcher(known=False, verbs=("run-program",)),
    "nice": Launcher(valued=("-n", "--adjustment")),
    "nohup": Launcher(),
    "npm": Launcher(known=False, verbs=("exec", "x")),
    "npx": _OPTIONAL,
    "nsys": _VAGUE,
    "numactl": _VAGUE,
    "nvprof": _OPTIONAL,
    "opentelemetry-instrument": _OPTIONAL,
    "orterun": _VAGUE,
    "parallel": _OPTIONAL,
    "pdm": _RUN_IN_PROJECT,
    "perf": _OPTIONAL,
    "pgrphack": Launcher(),
    "pipenv": _RUN_IN_PROJECT,
    "pixi": _RUN,
    "pnpm": Launcher(known=False, verbs=("exec", "dlx")),
    "poetry": _RUN_IN_PROJECT,
    "prlimit": _OPTIONAL,
    "prterun": _VAGUE,
    "prun": _VAGUE,
    "py-spy": _OPTIONAL,
    "rocgdb": _OPTIONAL,
    "rocprof": _OPTIONAL,
    "runuser": _OPTIONAL,
    "rye": _RUN_IN_PROJECT,
    "s6-applyuidgid": _VAGUE,
    "s6-envdir": _VAGUE,
    "s6-envuidgid": Launcher(1),
    "s6-notifyoncheck": _VAGUE,
    "s6-setlock": _VAGUE,
    "s6-setsid": _VAGUE,
    "s6-setuidgid": Launcher(1),
    "s6-softlimit": _VAGUE,
    "scl": _OPTIONAL,
    "setarch": _VAGUE,
    "setlock": Launcher(1, flags=("-n", "-N", "-x", "-X")),
    "setpriv": _VAGUE,
    "setsid": Launcher(flags=("-c", "-f", "-w", "--ctty", "--fork", "--wait")),
    "setuidgid": Launcher(1),
    "setuser": Launcher(1),
    "softlimit": _VAGUE,
    "srun": _VAGUE,
    "ssh-agent": _OPTIONAL,
    "start-stop-daemon": Launcher(known=False, optional=True, verbs=("--start", "-S")),
    "stdbuf": Launcher(valued=("-i", "-o", "-e")),
    "strace": _VAGUE,
    "su-exec": Launcher(1),
    "sudo": Launcher(
        valued=("-u", "-g", "-C", "-D", "-h", "-p", "-R", "-r", "-T", "-t", "-U"),
        flags=("-E", "-H", "-n", "-S", "-i", "-nE"),
    ),
    "taskset": Launcher(1, flags=("-a", "-c")),
    "tau_exec": _OPTIONAL,
    "time": Launcher(valued=("-f", "-o"), flags=("-a", "-p", "-v")),
    "timeout": Launcher(1, ("-k", "-s", "--kill-after", "--signal"), ("--foreground", "--preserve-status", "-v")),
    "tini": _INIT,
    "tini-static": _INIT,
    "unshare": _VAGUE,
    "uv": _RUN_IN_PROJECT,
    "valgrind": _VAGUE,
    "vtune": _OPTIONAL,
    "watch": _OPTIONAL,
    "with-contenv": Launcher(),
    "xargs": _OPTIONAL,
    "xvfb-run": Launcher(valued=("-e", "-f", "-n", "-p", "-s", "-w"), flags=("-a", "-l")),
    "yarn": Launcher(known=False, verbs=("exec", "dlx")),
}
MAKES_NOTHING = frozenset({
    "[", "addgroup", "adduser", "basename", "cat", "chgrp", "chown", "cut", "date", "df", "dirname", "du",
    "echo", "egrep", "expr", "false", "fgrep", "free", "getent", "grep", "groupadd", "groupmod", "head",
    "hostname", "id", "ldconfig", "locale", "ls", "mkdir", "nproc", "nvidia-smi", "printenv", "ps", "readlink",
    "realpath", "rm", "rmdir", "seq", "sleep", "sort", "stat", "stty", "tail", "test", "touch", "tr",
    "true", "tty", "uname", "uniq", "useradd", "usermod", "wc", "whoami",
})  # fmt: skip
"""Programs of entrypoints behind which no other program is there that was not before (the manual page of each)."""
AS_USER = ("su", "runuser", "sudo")
"""Programs that run another one for another user."""
_LINE = re.compile("-[flmpP]*c")
"""Options of su, the last of which has a line of a shell behind it."""
_LOADER = re.compile(r"ld-linux.*\.so\.\d|ld-musl-.*\.so\.1|ld64\.so\.\d|ld-\d.*\.so")
_LOADER_OPTIONS = (
    "--library-path", "--preload", "--argv0", "--inhibit-rpath", "--audit", "--glibc-hwcaps-prepend",
    "--glibc-hwcaps-mask",
)  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)


def launched(name: str, arguments: tuple[str, ...]) -> Launched | None:
    """What the program called `name` starts with `arguments`; None where it is no launcher."""
    if _LOADER.fullmatch(name):
        # Which directories and which C library it takes is its own: those of the program's interpreter say nothing.
        return structs.replace(_parted(Launcher(valued=_LOADER_OPTIONS), arguments)[0], by_loader=True)
    if (parts := becomes(name, arguments)) and parts[1]:
        return _of_execline(name, *parts)
    launcher = LAUNCHERS.get(name)
    if name in AS_USER and (shell := _shell_of(arguments)):
        return Launched(shell)
    if launcher is None:
        return None
    if launcher.verbs:
        verb = next((at for at, word in enumerate(arguments) if word in launcher.verbs), len(arguments))
        arguments = arguments[verb + 1 :]
        if not arguments:
            return None
    if launcher is _CONDA:
        return _in_environment(arguments)
    if not launcher.known:
        return Launched(arguments, certain=False, optional=launcher.optional, own=launcher.own)
    if name in ("env", "sudo"):
        return _with_environment(name, launcher, arguments)
    return _parted(launcher, arguments)[0]


def _of_execline(name: str, operands: tuple[str, ...], words: tuple[str, ...]) -> Launched:
    # Other programs have these names, too: ImageMagick has an `import`.
    return Launched(
        words,
        assignments=("=".join(operands),) if name == "export" else (),
        removed=operands if name == "unexport" else (),
        emptied=name == "emptyenv",
        directory=operands[0] if name == "cd" else "",
        certain=False,
        optional=True,
    )


def _shell_of(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The shell that su or runuser starts, and the line that it gets; empty without `-c`."""
    shell, line = "/bin/sh", ""
    for option, value in pairwise((*arguments, "")):
        name, equals, given = option.partition("=")
        if name in ("-s", "--shell"):
            shell = given if equals else value
        elif name in ("--command", "--session-command") or _LINE.fullmatch(name):
            line = given if equals else value
    return (shell, "-c", line) if line else ()


def _with_environment(name: str, launcher: Launcher, arguments: tuple[str, ...]) -> Launched:
    inner, options = _parted(launcher, _split(arguments))
    words = inner.words
    count = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    directory = next((value for option, value in options if option in ("-C", "-D", "--chdir")), "")
    if name == "sudo":
        # ld.so takes them from programs with the rights of others (ld.so(8), "secure-execution mode").
        return Launched(words[count:], words[:count], LOADER_VARIABLES, False, directory, certain=inner.certain)
    removed = tuple(value for option, value in options if option in ("-u", "--unset"))
    emptied = any(option in ("-", "-i", "--ignore-environment") for option, _ in options)
    return Launched(words[count:], words[:count], removed, emptied, directory, certain=inner.certain)


def _in_environment(arguments: tuple[str, ...]) -> Launched:
    inner, options = _parted(_CONDA, arguments)
    told = dict(options)
    named = (told[name] for name in ("-n", "--name", "-p", "--prefix") if name in told)
    return structs.replace(inner, directory=told.get("--cwd", ""), environment=next(named, ""))


def _split(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """`env -S "words"`, `-Swords` and `--split-string=words`, which a `#!` line needs for more than one word."""
    for index, word in enumerate(arguments):
        if word in ("-S", "--split-string", "-vS"):
            return (*arguments[:index], *_words(arguments[index + 1 : index + 2]), *arguments[index + 2 :])
        if word.startswith(("-S", "--split-string=")):
            text = word.removeprefix("-S") if word.startswith("-S") else word.partition("=")[2]
            return (*arguments[:index], *_words((text,)), *arguments[index + 1 :])
        if not word.startswith("-"):
            break
    return arguments


def _words(text: tuple[str, ...]) -> list[str]:
    import shlex

    try:
        return shlex.split(text[0]) if text else []
    except ValueError:
        return []


def operands(arguments: tuple[str, ...], valued: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The first word that is no option, and what follows it; `valued` are options with a value of their own."""
    return _parted(Launcher(valued=valued), arguments)[0].words


def _parted(launcher: Launcher, arguments: tuple[str, ...]) -> tuple[Launched, list[tuple[str, str]]]:
    """What is behind options and operands, and the options with their values."""
    options: list[tuple[str, str]] = []
    index, operands, certain = 0, launcher.operands, True
    while index < len(arguments):
        word = arguments[index]
        index += 1
        if word == "--":
            return Launched(arguments[index + operands :]), options
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            if name in launcher.valued and not equals:
                value = arguments[index] if index < len(arguments) else ""
                index += 1
            certain &= name in launcher.valued + launcher.flags or bool(equals)
            options.append((name, value))
        elif operands:
            operands -= 1
        else:
            return Launched(arguments[index - 1 :], certain=certain), options
    return Launched(), options
