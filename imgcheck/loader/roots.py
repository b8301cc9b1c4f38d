"""What runs in an image: its command, through PATH, launchers, `#!` lines and shell scripts, down to ELF files."""

import posixpath
import re
from collections.abc import Generator, Iterable, Iterator, Sequence

from msgspec import Struct, structs

from imgcheck.architectures import machine_of
from imgcheck.documents.image import Hindrance, ImageProfile, Script, Services, Unstartable
from imgcheck.documents.shell_commands import ShellCommand
from imgcheck.loader.closure import Roots
from imgcheck.loader.course import DECLARING, Course, leaves
from imgcheck.loader.environment import LOADER_VARIABLES, environment_of, given_with
from imgcheck.loader.execline import EXECLINE
from imgcheck.loader.expansion import ALTERNATIVES, ASSIGNMENT, GAP, Shell
from imgcheck.loader.invocation import HOME, Invocation, invocation
from imgcheck.loader.launchers import Launched, activated, fronts, launched, launchers, makes_nothing, operands
from imgcheck.loader.native_modules import literals
from imgcheck.loader.places import MATCHES, Places, is_pattern, places
from imgcheck.loader.python import invoked, python_version
from imgcheck.loader.services import HERE
from imgcheck.loader.shell import (
    AGAIN,
    CLOSES,
    DONE,
    JOINED,
    LOOP,
    LOOSE,
    MARKS,
    NEEDED,
    OPENS,
    PIPEFAIL,
    asks_cpu,
    read_commands,
    with_whole_names,
)
from imgcheck.loader.shell_words import UNKNOWN
from imgcheck.loader.started import EVERY_SHELL, By, Outcome, Started
from imgcheck.loader.supervisors import supervised, supervisor_of
from imgcheck.loader.tree import Tree
from imgcheck.loader.usual import with_usual
from imgcheck.loader.variables import set_by

_MACHINES = ("x86_64", "aarch64", "ppc64le")
_TAKE_BACK = frozenset({"bash", "zsh"})
"""Shells that are not as POSIX has them where it comes to assignments before special builtins."""
_LAYING = frozenset({"cp", "install", "ln", "mv"})
"""Programs that put libraries where a loader may find them."""
_LOCAL = frozenset({"declare", "local", "typeset"})
_SPECIAL = frozenset({".", "eval", "exec", "set", "shift", "unset"})
"""Those builtins that are followed behind which assignments before them stay (POSIX, XCU 2.14), but in bash."""
_EXPORTING = re.compile(r"-[a-zA-Z]*x[a-zA-Z]*")
"""`declare -x`."""
_PATH_OF_NONE = "/bin:/usr/bin"
"""Where execvp(3) seeks without PATH."""
_PATH_OF_SHELLS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where shells seek without it (Debian's dash and bash)."""
_DEPTH = 40
"""Programs and functions that start each other, before nothing more is followed."""
_STEPS = 8000
"""Commands that are followed besides those of services; a script that another one starts gets half of what is left, so
that it does not cost what comes behind it."""
_STEPS_OF_SERVICE, _STEPS_OF_SERVICES = 4000, 20_000
"""The same of one service, and of all: a Debian's cron jobs have thousands."""
_MOST_ROUNDS = 64
"""Rounds of a loop that are followed one by one."""
_ROUNDS = 2
"""How often a script that starts itself with other arguments is followed."""


def find_roots(
    image: ImageProfile, command: tuple[str, ...] | None = None, entries: tuple[str, ...] = (), bare: bool = True
) -> Roots:
    """What runs: `command` (the user's words after `--`) in place of CMD, ENTRYPOINT before it, and `entries`.

    `command` None means the image's own. `bare`: the runtime may start the user's words without ENTRYPOINT, unless
    they begin with an option. `entries` (`--entry PATH`) replace the command where that is None, else they add to it.

    What runs where users set and mount nothing is certain, too; whatever they do not decide is followed.
    """
    tree = Tree(image)
    known = Places(image, tree)
    every = _Search(image, tree, known, usual=False)
    found = every.roots(command, entries, bare)
    if not every.scripted:
        return found
    return with_usual(found, _Search(image, tree, known, usual=True).roots(command, entries, bare))


class _Here(Struct, frozen=True):
    """Where in a script a command stands."""

    shell: Shell
    by: By
    depth: int
    ends: bool = True
    """The script ends with it."""
    conditional: bool = False
    forgiven: bool = False
    """The script goes on where the command fails."""
    main: bool = True
    """No other program of its own is started behind it."""
    needed: bool = False
    """The script ends where the command fails, even where it is not set to (`|| exit 1`)."""
    loose: bool = False
    """Its failure is no matter to `set -e`."""
    within: bool = False
    """In a subshell: what ends that does not end the script."""

    @property
    def essential(self) -> bool:
        """Whether nothing good comes of a run in which the command fails."""
        counts = self.main or (self.shell.errexit and not self.loose)
        return self.needed or (counts and not self.forgiven)

    def at(self, command: ShellCommand, ends: bool, main: bool, certain: bool, mark: str) -> "_Here":
        """At one of its commands; `certain`: the tests before it are known to lead there; `mark`: as shell.MARKS."""
        return structs.replace(
            self,
            ends=self.ends and ends,
            main=self.main and main,
            needed=self.needed or mark == NEEDED,
            loose=self.loose or mark in (JOINED, LOOSE),
            conditional=self.conditional or command.conditional or not certain,
            forgiven=self.forgiven or command.forgiven,
        )

    def deeper(self) -> "_Here":
        return structs.replace(self, depth=self.depth - 1)


class _Result(Struct, frozen=True):
    """What became of one command of a script."""

    outcome: Outcome
    final: bool
    """The script ends with it, or becomes it (`exec`)."""
    handed: bool = False
    """It is the script's own arguments (`"$@"`)."""


class _Search:
    """Follows commands down to ELF files."""

    def __init__(self, image: ImageProfile, tree: Tree, known: Places, usual: bool) -> None:
        """`usual`: where users give the container nothing of their own."""
        self._tree, self._places, self._config = tree, known, image.config
        environment = environment_of(image)
        variables = {name: [value] for name, value in image.config.variables.items()}
        variables["PATH"] = [":".join(environment.path)]
        exported = set(variables)
        # Of 32-bit code it says nothing: the kernel may have 64.
        machine = machine_of(image.platform.architecture)
        variables["uname -m"] = [machine if machine in _MACHINES else GAP]
        library_path, preload = (image.config.variables.get(name, "") for name in LOADER_VARIABLES)
        # What the image leaves unset is empty, not unknown: scripts put their own before it.
        variables |= {"LD_LIBRARY_PATH": [given_with(library_path)], "LD_PRELOAD": [preload]}
        here = [environment.working_directory]
        self._shell = Shell(variables, here, known.may_be_program, exported=exported, usual=usual)
        self.scripted = False
        """A shell's text was followed, whose course users may change."""
        self._supervised: set[tuple[str, tuple[str, ...]]] = set()
        """Supervisors that have been looked at, with their words."""
        self._held = frozenset(image.tree.held)
        self._active: set[tuple[str, tuple[str, ...] | None]] = set()
        """Scripts that are being followed, with their arguments; None where they are sourced."""
        self._steps, self._of_services = _STEPS, _STEPS_OF_SERVICES
        self.started = Started(image, self._tree, self._shell.loader_variables)

    def roots(self, command: tuple[str, ...] | None, entries: tuple[str, ...], bare: bool) -> Roots:
        """As find_roots."""
        words: tuple[str, ...] = ()
        outcomes: list[Outcome] = []
        if command is not None or not entries:
            tail = self._config.command if command is None else command
            words = (*self._config.entrypoint, *tail)
            outcomes.append(self.start(words))
            if command and bare:
                self.start(command, report=not command[0].startswith("-"))
        outcomes += [self.start((entry,)) for entry in entries]
        return self.started.roots(words, outcomes)

    def start(self, words: tuple[str, ...], report: bool = True) -> Outcome:
        """What becomes of `words` as the container's runtime starts them."""
        return self._run(words, self._shell.child(), By(report=report), _DEPTH)

    def _run(self, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> Outcome:
        self._steps -= 1
        if not words:
            return "waits"
        if depth <= 0 or self._steps < 0:
            return "unknown"
        if GAP in words[0]:
            return self._behind_gap(words, shell, by, depth)
        if words[0].endswith("\r") and by.name:
            return self._fail(Unstartable(words[0].rstrip("\r"), "carriage-return", by.name, by=by.name), by)
        place = self._places.look(words[0], shell)
        is_read = place.reason == "no-format" and _has_a_shell_read(by)
        if is_read or not (place.path or place.reason):
            return "unknown"
        if place.reason:
            what = Unstartable(words[0], place.reason, place.path, by=by.name, searched=place.searched)
            return self._fail(what, by)
        # What could not be read may have changed PATH.
        if shell.vague and "/" not in words[0] and not self._places.is_only(words[0]):
            self.started.in_part = self.started.idle = True
            by = by.inside(by.name, perhaps=True, always=False)
        if "/" in words[0]:
            self.started.named_from_workdir(words[0], shell, by)
        script = self._places.scripts.get(place.path)
        if script is not None:
            return self._script(script, place.called, words, shell, by, depth)
        return self._program(place.path, words, shell, by, depth)

    def _behind_gap(self, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> Outcome:
        """`$SUDO make`: an unknown word before a program may be a launcher, or nothing."""
        if words[0] == GAP and len(words) > 1 and self._places.look(words[1], shell).path:
            self._run(words[1:], shell, by.inside(by.name, report=False), depth - 1)
        return "unknown"

    def _reads(self, word: str, shell: Shell, by: By) -> None:
        """An interpreter reads the file that `word` names; one that was itself started is on the way to it."""
        path = self._places.file(word, shell)
        if path and path != by.name:
            self.started.read(path, shell, by)
            self.started.named_from_workdir(word, shell, by)

    def _fail(self, what: Unstartable, by: By) -> Outcome:
        if by.report:
            self.started.unstartable[what] = None
        return "absent"

    # Programs

    def _program(self, path: str, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> Outcome:
        self.started.program(path, shell, by)
        called, real, arguments = posixpath.basename(words[0]), posixpath.basename(path), words[1:]
        self.started.words(arguments, shell.directories)
        if called == "busybox" and arguments:
            words = arguments
            called, arguments = words[0], words[1:]
        self._supervise(path, words, shell, by, depth)
        if called in EVERY_SHELL or real in EVERY_SHELL:
            return self._shell_program(called, real, arguments, shell, by, depth)
        if EXECLINE in (called, real):
            return self._execline(arguments, shell, by, depth)
        inner = launched(called, arguments)
        if inner is not None:
            return self._launch(called, path, inner, shell, by, depth)
        own = self._interpret(path, called, words, shell, by, depth)
        if own:
            self._reads(own, shell, by)
        self._start_others(path, called, arguments, shell, by, depth)
        if not makes_nothing(called):
            rest = tuple(word for word in arguments if word != own or not self._places.may_be_program(word, shell))
            self._hand_on(rest, shell, by.inside(path, report=False, perhaps=True), depth)
        return "started"

    def _interpret(self, path: str, called: str, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> str:
        """Note how an interpreter starts; its script, "" where the program at `path` is none or has none."""
        arguments = words[1:]
        if any(python_version(name) is not None for name in (called, posixpath.basename(path))):
            kind, given = invoked(arguments)
            self._supervise_in_python(kind, given, shell, by, depth)
            # Of what a launcher that is written in Python gets, others than it look for the files.
            by = by.inside(by.name, report=not (given and launched(posixpath.basename(given[0]), given[1:])))
            called_by = (place for place in places(words[0], shell) if self._tree.canonical(place) == path)
            self.started.python(path, next(called_by, path), arguments, shell, by)
            return "" if kind else next(iter(given), "")
        return next(iter(operands(arguments)), "") if self.started.interpreter(path, called, arguments, shell) else ""

    def _start_others(
        self, path: str, called: str, arguments: tuple[str, ...], shell: Shell, by: By, depth: int
    ) -> None:
        """What the program at `path`, called by a name, starts of its own package."""
        front = fronts().get(called) or fronts().get(posixpath.basename(path))
        if front is None:
            return
        if front.always:
            self.started.launcher(path)
        for name in front.starts:
            beside = posixpath.join(posixpath.dirname(path), name)
            word = beside if self._places.may_be_program(beside, shell) else name
            inside = by.inside(path, report=False, perhaps=not front.always)
            self._run((word, *arguments), shell.child(), inside, depth - 1)

    def _hand_on(self, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> None:
        """A program that its arguments name by its path is one that it may start."""
        by = structs.replace(by, always=False, branch=False)
        for at, word in enumerate(words):
            if "/" in word and self._places.may_be_program(word, shell):
                self._run(words[at:], shell.child(), by, depth - 1)
                return
            for path in literals(word)[:MATCHES]:
                if path != word and self._places.may_be_program(path, shell):
                    self._run((path,), shell.child(), by, depth - 1)

    def _launch(self, name: str, path: str, inner: Launched, shell: Shell, by: By, depth: int) -> Outcome:
        """What the launcher at `path`, called by a name, starts."""
        self.started.way(name, by)
        if inner.alone and not inner.words:
            return "started"
        self.started.launcher(path)
        child = shell.child()
        if inner.emptied:
            child.variables, child.exported, child.steered = {"PATH": [_PATH_OF_NONE]}, set(), False
        for variable in LOADER_VARIABLES if inner.emptied else inner.removed:
            child.unset(variable, conditional=False)
        child.lend(tuple(word.replace("$", "$$") for word in inner.assignments))
        child.steered |= inner.untold
        if inner.directory:
            child.change_directory(inner.directory.replace("$", "$$"), conditional=False)
        # Which directories and which C library another loader takes than the program's is its own.
        child.steered |= inner.by_loader and not self._loads(path, inner.words, child)
        own = (posixpath.join(place, each) for place in child.directories for each in inner.own)
        child.variables["PATH"] = [":".join((*own, *child.path))]
        if inner.environment:
            self._activate(_prefixes(inner.environment, path, child), child, by.inside(name, report=False), depth)
        words = inner.words
        if not inner.certain:
            begin = next((index for index, word in enumerate(words) if self._places.may_be_program(word, child)), None)
            if begin is None and inner.optional:
                self._hand_on(words, child, by.inside(name, report=False, perhaps=True), depth)
                return "started"
            words = (GAP,) if begin is None else words[begin:]
        child.vague |= inner.for_user
        report = inner.certain and not inner.for_user and not inner.perhaps
        if shell.resolved:  # a script's `$COMMAND` is split into its words, and no one else's
            words = self._lines(words, child)[0]
        return self._run(words, child, by.inside(name, report, inner.perhaps, not inner.perhaps), depth - 1)

    def _loads(self, loader: str, words: tuple[str, ...], shell: Shell) -> bool:
        """Whether a dynamic loader is the one that the program asks for."""
        program = self._tree.linkage.get(self._places.look(words[0], shell).path) if words else None
        return program is not None and self._tree.canonical(program.interpreter) == loader

    def _activate(self, prefixes: list[str], shell: Shell, by: By, depth: int) -> None:
        """What conda does to run a program in an environment, which lies in one of some places."""
        prefixes = [each for each in prefixes if self._places.is_directory(f"{each}/bin")] or prefixes
        shell.variables["PATH"] = [":".join((*(f"{prefix}/bin" for prefix in prefixes), *shell.path))]
        shell.variables["CONDA_PREFIX"] = prefixes
        shell.exported.add("CONDA_PREFIX")
        here = _Here(shell, by, depth - 1, ends=False, main=False)
        for prefix in prefixes:
            hooks = f"{prefix}/etc/conda/activate.d/*.sh".replace("$", "$$")
            list(self._source((hooks,), here))

    def _shell_program(
        self, name: str, real: str, arguments: tuple[str, ...], shell: Shell, by: By, depth: int
    ) -> Outcome:
        """What the shell called `name`, which is the file `real`, does."""
        invoked = invocation(name, arguments)
        operands, child = invoked.operands, shell.child()
        child.functions, child.keeps, child.local = {}, name not in _TAKE_BACK, None
        child.errexit, child.plain, child.left = invoked.errexit, real == "dash", False
        if "PATH" not in child.exported:
            child.variables["PATH"] = [_PATH_OF_SHELLS]
        if not operands:
            return "waits"
        if GAP in operands[0]:
            return "unknown"
        self._start_up(invoked, child, by.inside(name, report=False), depth)
        if invoked.line:
            child.script, child.arguments = (*operands[1:2], name)[0], [operands[2:]]
            child.asks_cpu |= asks_cpu(operands[0])
            self.started.way(name, by)
            return self._text(read_commands(operands[0]), child, by.inside(name), depth)
        script = self._places.script(operands[0], shell)
        if "/" in operands[0] or not set(shell.path) & set(shell.directories):  # bash seeks in PATH, too
            self._reads(operands[0], shell, by)
        return self._file(script, operands, child, by, depth) if script else "unknown"

    def _start_up(self, invoked: Invocation, shell: Shell, by: By, depth: int) -> None:
        """What a shell reads before its command: variables and functions stay, of what it starts nothing depends."""
        touched, asks_cpu = shell.touched, shell.asks_cpu
        here = _Here(shell, by, depth - 1, ends=False, main=False)
        for alternatives in invoked.startup:
            words = (word for template in alternatives for word in shell.expand_word(template))
            first = next((word for word in words if self._places.script(word, shell)), "")
            list(self._source((first.replace("$", "$$"),), here))
        list(self._source((invoked.named,), here))
        shell.touched, shell.asks_cpu = touched, asks_cpu

    def _execline(self, arguments: tuple[str, ...], shell: Shell, by: By, depth: int) -> Outcome:
        """A text of execline; its options have no values of their own."""
        behind = operands(arguments)
        script = self._places.script(behind[0], shell) if behind else None
        return self._file(script, behind, shell.child(), by, depth) if script else "unknown"

    # Supervisors

    def _supervise(self, path: str, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> None:
        """What the program or script at `path` starts besides, where it is a supervisor."""
        kind = supervisor_of({posixpath.basename(words[0]), posixpath.basename(path), path})
        if kind is None or (path, words[1:]) in self._supervised:
            return
        self._supervised.add((path, words[1:]))
        told, here = supervised(kind, path, words[1:]), shell.child()
        here.variables["PATH"] = [":".join((*kind.path, *here.path))]
        # It goes on whatever becomes of one of them.
        perhaps = by.perhaps or kind.on_condition
        by = structs.replace(by, name=path, report=False, perhaps=perhaps, always=False, branch=False)
        first = next((found for each in told.first_of if (found := self._places.services_like(each, here))), [])
        files = [*first, *(found for each in told.files for found in self._places.services_like(each, here))]
        hooks, scripts = (
            [found for each in patterns for found in self._places.programs_like(each, here)]
            for patterns in (told.hooks, told.scripts)
        )
        # What an earlier command of a script has made is not seen.
        self.started.in_part |= kind.unread or (shell.touched and not kind.on_condition)
        for script in (*hooks, *scripts):
            child = here.child()
            child.change_directory(posixpath.dirname(script).replace("$", "$$"), conditional=False)
            named = re.fullmatch(kind.names, posixpath.basename(script)) is not None
            doubtful = script in hooks or not named or self._is_held(script)
            self._serve((script,), child, by.inside(path, perhaps=doubtful), depth)
        started = self._configured(files, here, by, depth) or bool(scripts)
        self.started.in_part |= told.told and not started
        if told.words and (files or scripts):
            self._serve(told.words, here, by, depth)

    def _supervise_in_python(self, kind: str, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> None:
        """The same of a script or module that Python is given, as `invoked` has them."""
        if words and kind == "m":
            self._supervise(words[0].replace(".", "/"), words, shell, by, depth)
        elif words and not kind and (script := self._places.script(words[0], shell)):
            self._supervise(script.path, words, shell, by, depth)

    def _configured(self, files: list[Services], shell: Shell, by: By, depth: int) -> bool:
        """What configurations name, and those that they include; whether that is anything."""
        included = (found for file in files for found in self._included(file, shell))
        every = list({file.path: file for file in (*files, *included)}.values())
        for file in every:
            shell.variables[HERE] = [posixpath.dirname(file.path)]
            self.started.way(file.path, by)
            for service in file.services:
                child = shell.child()
                child.lend(service.environment)
                if service.directory:
                    child.change_directory(service.directory, conditional=False)
                lines = child.expand(service.words)
                perhaps = by.perhaps or not service.certain or len(lines) > 1 or self._is_held(file.path)
                for words in lines:
                    self._serve(words, child, structs.replace(by, name=file.path, perhaps=perhaps), depth)
        return any(file.services for file in every)

    def _is_held(self, path: str) -> bool:
        """Whether nothing starts the service of a script or configuration by itself."""
        return self._tree.canonical(path) in self._held

    def _included(self, file: Services, shell: Shell) -> list[Services]:
        """The configurations that one includes: these include no others (supervisor's read_include_config)."""
        shell.variables[HERE] = [posixpath.dirname(file.path)]
        patterns = [each for template in file.includes for each in shell.expand_word(template)]
        return [found for pattern in patterns for found in self._places.services_like(pattern, shell)]

    def _serve(self, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> None:
        """A service, or what comes before them."""
        before, own = self._steps, min(_STEPS_OF_SERVICE, self._of_services)
        self._steps = own
        self.started.in_part |= self._run(words, shell.child(), by, depth - 1) == "unknown"
        self._of_services -= own - self._steps
        self._steps = before

    # Scripts

    def _script(self, script: Script, called: str, words: tuple[str, ...], shell: Shell, by: By, depth: int) -> Outcome:
        """What the kernel makes of an executable text, which was found at `called`."""
        self.started.way(script.path, by)
        self._supervise(script.path, words, shell, by, depth)
        interpreter = script.interpreter
        if not interpreter:
            if not _has_a_shell_read(by):
                return self._fail(Unstartable(words[0], "no-format", script.path), by)
            interpreter = ("/bin/sh",)
        if any(word.endswith("\r") for word in interpreter):
            asked = " ".join(interpreter).removesuffix("\r")
            return self._fail(Unstartable(words[0], "carriage-return", script.path, asked, by.name), by)
        if reason := self._places.look(interpreter[0], shell).reason:
            closed: Hindrance = "interpreter-not-executable" if reason == "not-executable" else "no-interpreter"
            return self._fail(Unstartable(words[0], closed, script.path, interpreter[0], by.name), by)
        # Shells tell a script how it was called; Python and others look where it lies.
        path = called if script.commands else script.path
        outcome = self._run((*interpreter, path, *words[1:]), shell, by.inside(script.path), depth - 1)
        # What a shell's script starts is seen in its text.
        inner = launched(posixpath.basename(words[0]), words[1:]) if not script.commands else None
        if inner is None or outcome == "absent":
            return outcome
        return self._launch(posixpath.basename(words[0]), script.path, inner, shell, by, depth)

    def _file(self, script: Script, operands: tuple[str, ...], shell: Shell, by: By, depth: int) -> Outcome:
        """A script that a shell reads: how it is called, and its arguments."""
        arguments = operands[1:]
        if (script.path, arguments) in self._active or self._rounds(script) == _ROUNDS:
            return "started"  # itself again, as for another user
        self._active.add((script.path, arguments))
        # One that is sought in PATH is known by the path at which it was found.
        shell.script = operands[0] if "/" in operands[0] else script.path
        shell.resolved, shell.arguments, shell.given = script.path, [arguments], arguments
        shell.asks_cpu |= script.asks_cpu
        left = self._steps // 2
        self._steps -= left
        outcome = self._text(script.commands, shell, by.inside(script.path), depth)
        self._steps = max(self._steps, 0) + left
        self._active.discard((script.path, arguments))
        return outcome

    def _rounds(self, script: Script) -> int:
        return sum(path == script.path for path, _ in self._active)

    def _text(self, commands: Sequence[ShellCommand], shell: Shell, by: By, depth: int) -> Outcome:
        results = list(self._commands(commands, _Here(shell, by, depth)))
        finals = [result for result in results if result.final] or results
        started = [result for result in finals if result.outcome == "started"]
        if not results:
            return "started"  # the shell's own commands, and nothing else
        if not started:
            outcomes = {result.outcome for result in finals}
            return "absent" if outcomes == {"absent"} else "unknown" if "unknown" in outcomes else "waits"
        # Handed arguments that start leave no doubt about the shell that would have waited without them.
        doubtful = ("unknown",) if any(result.handed for result in started) else ("unknown", "waits")
        self.started.in_part |= any(result.outcome in doubtful for result in results)
        return "started"

    def _commands(self, commands: Iterable[ShellCommand], here: _Here) -> Iterator[_Result]:
        """Each command that starts something."""
        self.scripted = True
        outside = self._outside(commands, here.shell)
        course = Course(outside)
        around: list[_Here] = []
        mark = passed = ""
        for index, command in enumerate(outside):
            runs = course.runs(command)
            certain = runs is True and not here.shell.round
            if runs is False or passed:
                passed = "" if command.words == (DONE, passed) else passed
            elif command.words[0] == LOOP:
                at = here.at(command, False, here.main and course.is_main(index), certain, "")
                passed = command.words[1] if (yield from self._rounds_of(command.words[1], at)) else ""
            elif command.words in MARKS:
                mark = command.words[0]
            elif command.words == (OPENS,):
                around.append(here)
                here = structs.replace(here, shell=here.shell.child(), within=True)
            elif command.words == (CLOSES,):
                touched, here = here.shell.touched, around.pop() if around else here
                here.shell.touched |= touched
            elif command.decides and not here.shell.stopped:
                course.decide(command, here.shell, self._exists)
            elif not here.shell.stopped:  # what stands in a subshell behind its end is left out
                ends, main = here.ends and course.is_last(index), here.main and course.is_main(index)
                yield from self._command(command.words, here.at(command, ends, main, certain, mark))
                mark = ""
                if here.shell.over and not around:
                    return
                left = leaves(command) and not here.within
                here.shell.left |= left and course.may_end(command, here.conditional)
                if ends or left:
                    course.end(command)
        self.started.idle |= here.ends and not course.always_ends()

    def _exists(self, shell: Shell, path: str, executable: bool) -> bool | None:
        """As Places.exists: where the script has asked, what it does depends on where and for whom it runs."""
        shell.asked = True
        shell.elsewhere |= not path.startswith("/")
        return self._places.exists(shell, path, executable)

    def _rounds_of(self, name: str, here: _Here) -> Generator[_Result, None, bool]:
        """The rounds of a loop as far as it can be told that they are run; whether the loop has ended with them."""
        shell, before = here.shell, here.shell.round
        over = False
        for _ in range(_MOST_ROUNDS if name in shell.functions else 0):
            shell.variables.pop(AGAIN, None)
            shell.round = ""
            yield from self._commands(tuple(shell.functions[name]), here)
            again = shell.variables.pop(AGAIN, None)
            over = shell.over or shell.round == "left" or (again is None and not shell.round)
            if over or (again != ["1"] and shell.round != "ended"):
                break
        shell.round = before
        return over

    def _outside(self, commands: Iterable[ShellCommand], shell: Shell) -> list[ShellCommand]:
        """The commands outside of any function; the functions are defined."""
        outside: list[ShellCommand] = []
        defined: set[str] = set()  # since the last command outside of any function
        for command in with_whole_names(commands):
            name = command.function
            if not name:
                outside.append(command)
                defined.clear()
                continue
            if name not in defined and not (command.conditional or command.when):
                shell.functions[name] = []  # a later definition
            defined.add(name)
            shell.functions.setdefault(name, []).append(structs.replace(command, function=""))
            shell.defined_in[name] = shell.source
        return outside

    def _command(self, words: tuple[str, ...], here: _Here) -> Iterator[_Result]:
        self._steps -= 1
        if here.depth <= 0 or self._steps < 0:
            yield _Result("unknown", here.ends)
            return
        assigned = next((index for index, word in enumerate(words) if not ASSIGNMENT.match(word)), len(words))
        before, name, rest = words[:assigned], words[assigned : assigned + 1], words[assigned + 1 :]
        shell = here.shell
        if not name or name[0] in DECLARING:
            exports = name[:1] == ("export",) or any(_EXPORTING.fullmatch(word) for word in rest)
            for word in (*before, *rest):
                if name and name[0] in _LOCAL:
                    shell.make_local(word)
                shell.declare(word, exports, here.conditional)
        elif environments := self._environments(name[0], rest, shell):
            self._take_environments(name[0], environments, here)
        elif name[0] in shell.functions or (name[0] in _BUILTINS and not (shell.plain and name[0] == "source")):
            lent = shell.lend(before)
            if name[0] in shell.functions:
                yield from self._function(name[0], rest, here.deeper())
            else:
                yield from _BUILTINS[name[0]](self, rest, here.deeper()) or ()
            if not (shell.keeps and name[0] in _SPECIAL):
                shell.take_back(lent)
        else:
            yield from self._external((*name, *rest), here, before)
            called = posixpath.basename(name[0])
            shell.touched |= not makes_nothing(called)
            shell.steered |= called == "ldconfig" or (called in _LAYING and any(".so" in word for word in rest))

    def _environments(self, program: str, words: tuple[str, ...], shell: Shell) -> list[str]:
        """Those of conda that a command may activate in its shell."""
        told = (activated(posixpath.basename(program), line) for line in shell.expand(words)) if words else ()
        return [name for name in told if name is not None]

    def _take_environments(self, program: str, environments: list[str], here: _Here) -> None:
        """`conda activate NAME`, which is a function of the shell, or will be where that cannot be told."""
        shell, before = here.shell, here.shell.variables.get("PATH", [])
        path = self._places.look(program, shell).path or next(iter(shell.variables.get("CONDA_EXE", ())), "")
        prefixes = [prefix for name in environments for prefix in _prefixes(name, path, shell)]
        if GAP in "".join(prefixes) or not any(self._places.is_directory(f"{prefix}/bin") for prefix in prefixes):
            shell.vague = shell.steered = True
            return
        by = here.by.inside(posixpath.basename(program), report=False, perhaps=True)
        self._run((path or program, "shell.posix"), shell.child(), by, here.depth - 1)
        self._activate(prefixes, shell, by, here.depth - 1)
        if here.conditional:
            shell.variables["PATH"] += before

    def _external(
        self, templates: tuple[str, ...], here: _Here, assignments: tuple[str, ...] = ()
    ) -> Iterator[_Result]:
        shell = here.shell.child()
        shell.lend(assignments)
        lines = self._alternatives(templates, shell)
        handed, several = templates[0] == "${@}", len(lines) > 1
        alike = len({line[:1] for line in lines}) == 1
        literal_name = "$" not in templates[0]
        literal = handed or ("${" not in templates[0] and "$(" not in templates[0])
        # What could not be read may have given the name another value.
        untold = shell.vague and not literal_name and not handed
        self.started.idle |= untold or () in lines
        doubtful = here.conditional or shell.left or untold
        # What users name is in the image; what a script names, an earlier command of it may have made.
        named = handed or (literal and not shell.touched)
        if several and alike:
            self._starts_alone(lines[0], shell, self._by(here, doubtful, named, handed))
        for words in lines:
            if words and words[0] in here.shell.functions and not literal_name:
                yield from self._function_named(words, here, several)
            else:
                given = handed and (alike or _is_run_by_all(words[:1], lines, shell.given))
                by = self._by(here, doubtful or several, named, given)
                yield _Result(self._run(words, shell.child(), by, here.depth - 1), here.ends, handed)

    def _alternatives(self, templates: tuple[str, ...], shell: Shell) -> list[tuple[str, ...]]:
        """What a command may become; options are no programs, where it may begin with something else."""
        expanded = shell.expand(templates)
        if len(expanded) == ALTERNATIVES:  # of the others some may begin with another name
            told = {(), *(words[:1] for words in expanded)}
            expanded += [words + expanded[0][1:] for words in shell.expand(templates[:1]) if words[:1] not in told]
        lines = [line for words in expanded for line in self._lines(words, shell)]
        return [line for line in lines if not line[:1] or line[0][:1] != "-"] or lines

    def _function_named(self, words: tuple[str, ...], here: _Here, several: bool) -> Iterator[_Result]:
        """A function whose name stands in a variable, which may be one of several."""
        at = structs.replace(here.deeper(), conditional=here.conditional or several)
        yield from self._function(words[0], tuple(word.replace("$", "$$") for word in words[1:]), at)

    def _by(self, here: _Here, several: bool, named: bool, given: bool) -> By:
        """How a command there is started; `several`: it may be another one, or none; `given`: it is what users gave."""
        always = here.ends and not several and not here.forgiven
        fatal = here.essential and not several and not here.forgiven
        branch = here.ends and several and not here.forgiven and not here.shell.asks_cpu
        perhaps = not here.essential or (several and not given)
        return here.by.inside(here.by.name, fatal and named, perhaps, always, branch)

    def _starts_alone(self, words: tuple[str, ...], shell: Shell, by: By) -> None:
        """The program of a command starts whichever words it gets."""
        path = self._places.look(words[0], shell).path if words and not shell.vague else ""
        if path in self._tree.linkage:
            self.started.program(path, shell, by)

    def _lines(self, words: tuple[str, ...], shell: Shell) -> list[tuple[str, ...]]:
        """A command once its first word is split into fields and matched with file names."""
        if words and " " in words[0] and (GAP in words[0] or self._places.look(words[0], shell).reason):
            words = (*words[0].split(), *words[1:])
        if not words or GAP in words[0] or not is_pattern(words[0]):
            return [words]
        # What a pattern stands for may have been made by an earlier run.
        return [(path, *words[1:]) for path in self._places.programs_like(words[0], shell) or [GAP]]

    def _function(self, name: str, words: tuple[str, ...], here: _Here) -> Iterator[_Result]:
        shell = here.shell
        before = shell.arguments, shell.source, shell.local
        shell.arguments, shell.source, shell.local = shell.expand(words), shell.defined_in.get(name, ""), {}
        yield from self._commands(tuple(shell.functions[name]), here)
        shell.take_back(shell.local)
        shell.arguments, shell.source, shell.local = before

    # Builtins: the words behind the name

    def _cd(self, words: tuple[str, ...], here: _Here) -> None:
        goal = next((word for word in words if not word.startswith("-")), UNKNOWN)
        here.shell.change_directory(goal, here.conditional)

    def _unset(self, words: tuple[str, ...], here: _Here) -> None:
        for word in words if "-f" not in words else ():
            here.shell.unset(word, here.conditional)

    def _set(self, words: tuple[str, ...], here: _Here) -> None:
        if words[:1] == ("--",):
            here.shell.set_arguments(words[1:], here.conditional)
        elif words == PIPEFAIL[1:]:
            # Of a special builtin such a failure ends the script (POSIX, XCU 2.8.1).
            if here.shell.plain and not (here.conditional or here.within or here.shell.left):
                self._fail(Unstartable(" ".join(PIPEFAIL), "unknown-option", by=here.by.name), here.by)
        else:
            here.shell.errexit = words[:1] == ("-e",)

    def _shift(self, words: tuple[str, ...], here: _Here) -> None:
        if words[:1] == (UNKNOWN,):  # in a loop
            here.shell.shift_some()
            return
        count = int(words[0]) if words and re.fullmatch("[0-9]{1,3}", words[0]) else 1
        here.shell.shift(count, here.conditional)

    def _source(self, words: tuple[str, ...], here: _Here) -> Iterator[_Result]:
        """`. FILE`: its commands as if they stood here."""
        shell = here.shell
        own = bool(words[1:]) and not shell.plain  # dash leaves its own arguments to the file
        named = tuple(word.replace("${HOME}", HOME) for word in words[:1])
        for word in [line[0] for line in shell.expand(named) if line and line[0]]:
            for each in word.split() if GAP not in word else [word]:
                scripts = self._sourced(each, shell)
                if names := set_by(each):
                    for name in names:
                        shell.assign(f"{name}={UNKNOWN}", here.conditional)
                elif scripts is None:
                    shell.vague = True
                    # Files with a name of their own set up an environment, as what a command prints (`<(cat X)`);
                    # those that a loop finds are a user's hooks.
                    shell.steered |= GAP not in each or words[0] == UNKNOWN
                for script in scripts or ():
                    self._active.add((script.path, None))
                    before = shell.arguments
                    if own:
                        shell.arguments = shell.expand(words[1:])
                    shell.asks_cpu |= script.asks_cpu
                    above, shell.source = shell.source, script.path
                    # The script that reads it goes on behind it.
                    yield from self._commands(script.commands, structs.replace(here, ends=False))
                    shell.source = above
                    if own:
                        shell.arguments = before
                    self._active.discard((script.path, None))

    def _sourced(self, word: str, shell: Shell) -> list[Script] | None:
        """The scripts that `. WORD` reads; None where that cannot be told."""
        if is_pattern(word) and GAP not in word:
            return self._places.scripts_like(word, shell)
        script = self._places.script(word, shell)
        return None if script is None or (script.path, None) in self._active else [script]

    def _eval(self, words: tuple[str, ...], here: _Here) -> Iterator[_Result]:
        for line in here.shell.expand(words):
            commands = read_commands(" ".join(line).replace(GAP, UNKNOWN))
            if GAP in "".join(line) and not all(map(_names_its_program, commands)):
                here.shell.vague = here.shell.steered = True
                yield _Result("unknown", False)
            else:
                yield from self._commands(commands, here)

    def _exec(self, words: tuple[str, ...], here: _Here) -> Iterator[_Result]:
        while words[:1] and words[0] in ("-a", "-c", "-l", "-cl", "--"):
            words = words[2 if words[0] == "-a" else 1 :]
        if words:
            lines = here.shell.expand(words)
            last = not here.within  # nothing of the script runs behind it
            at = structs.replace(here, ends=here.ends or last, main=here.main or last)
            yield from self._external(words, at)
            here.shell.over |= not here.conditional and all(line and GAP not in line[0] for line in lines)

    def _exit(self, words: tuple[str, ...], here: _Here) -> None:
        here.shell.over |= not here.conditional

    def _break(self, words: tuple[str, ...], here: _Here) -> None:
        here.shell.round = "unsure" if here.conditional else "left"

    def _continue(self, words: tuple[str, ...], here: _Here) -> None:
        here.shell.round = "unsure" if here.conditional else "ended"

    def _plainly(self, words: tuple[str, ...], here: _Here) -> Iterator[_Result]:
        """`command NAME` and `builtin NAME`; `command -v NAME` only asks."""
        while words[:1] in (("-p",), ("--",)):
            words = words[1:]
        if words and not words[0].startswith("-"):
            yield from self._command(words, here)


_BUILTINS = {
    ".": _Search._source,
    "break": _Search._break,
    "builtin": _Search._plainly,
    "cd": _Search._cd,
    "command": _Search._plainly,
    "continue": _Search._continue,
    "eval": _Search._eval,
    "exec": _Search._exec,
    "exit": _Search._exit,
    "popd": _Search._cd,
    "pushd": _Search._cd,
    "set": _Search._set,
    "shift": _Search._shift,
    "source": _Search._source,
    "unset": _Search._unset,
}


def _has_a_shell_read(by: By) -> bool:
    """Whether who starts a text without `#!` has a shell read it, as execvp and shells do where the kernel refuses."""
    launcher = launchers().get(by.name)
    return bool(by.name) and not (launcher and launcher.strict)


def _is_run_by_all(program: tuple[str, ...], lines: Iterable[tuple[str, ...]], given: tuple[str, ...]) -> bool:
    """Whether a program is the one that users gave, and each of some lines starts it, by itself or by a launcher."""
    if not program or program != given[:1]:
        return False
    others = (line for line in lines if line[:1] != program)
    return all(program[0] in line and posixpath.basename(line[0]) in launchers() for line in others)


def _names_its_program(command: ShellCommand) -> bool:
    """Whether it is known what a command is, if not which words it gets."""
    name = next((word for word in command.words if word != "exec" and not ASSIGNMENT.match(word)), "")
    return UNKNOWN not in name or command.words in MARKS


def _prefixes(environment: str, program: str, shell: Shell) -> list[str]:
    """Where an environment of conda may lie; `program` is conda, or one of its kind."""
    if "/" in environment:
        return [posixpath.join(place, environment) for place in shell.directories]
    roots = [*shell.variables.get("MAMBA_ROOT_PREFIX", ()), posixpath.dirname(posixpath.dirname(program))]
    return [root if environment == "base" else f"{root}/envs/{environment}" for root in dict.fromkeys(roots) if root]
