"""Shell text -> the simple commands in it. Nothing is run: who follows them expands words as far as they can be told.

Of the grammar of POSIX (XCU 2.10) and of what bash adds, this reads what decides which commands there are: lists,
compound commands, functions, here-documents. Words come as templates (loader/shell_words.py).

The tests on which branches depend stand among the commands, each with a number by which these name it; who follows them
finds out which hold (loader/script_tests.py).
"""

import posixpath
import re
from binascii import crc32
from collections.abc import Iterable, Iterator
from itertools import dropwhile, pairwise, takewhile
from typing import Self

from msgspec import structs

from imgcheck.documents.shell_commands import ShellCommand
from imgcheck.loader.shell_words import ASSIGNED, ASSIGNMENT, BELOW, NAME, UNKNOWN, UnreadableError, WordReader, closed

SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh"})
"""Those whose texts are read here."""
OPENS, CLOSES = "(", ")"
"""In place of a command's name: what stands between them is a subshell's, of which the others see no change."""
NEEDED, JOINED, LOOSE = "!", "&&", "&"
"""In place of a command's name: the text ends where the next command fails (`|| exit 1`); where that fails, the one
behind it is not run (`a && b`); it is no matter to `set -e` (in a pipeline, in the background).
"""
PIPEFAIL = ("set", "-o", "pipefail")
"""What is kept of `set` with this option, which not every shell knows."""
LOOP, DONE = "while", "done"
"""In place of a command's name, before and behind what stands in a loop; the next word names a function that does one
round, and then assigns AGAIN.
"""
AGAIN = "_again"
MARKS = frozenset({(NEEDED,), (JOINED,), (LOOSE,)})
_OF_CONDITION = MARKS | {("set", "-e"), ("set", "+e")}
_SHIFT_SOME = ("shift", UNKNOWN)
"""`shift` in a loop, of which nobody knows how often it runs."""
_NOTHING = ("_=",)
"""For a function in which nothing is that matters."""
SAME = "="
"""In place of a function's name; none is called so."""
OPEN = "?"
"""A part of a condition that only running tells (loader/script_tests.py)."""

COMMANDS_LIMIT = 512
"""Commands and conditions that are kept of one text; what is left out counts as one that cannot be told."""
_WORDS_LIMIT = 32
_ROUNDS = 3
"""How often a loop runs again that adds to the arguments, as far as they are told apart by their number."""
_WORD_LENGTH = 512

_SILENT = frozenset({
    ":", "[", "alias", "autoload", "bg", "bind", "bindkey", "break", "caller", "compgen", "complete", "compopt",
    "continue", "dirs", "disown", "echo", "enable", "exit", "false", "fc", "fg", "getopts", "hash", "help", "history",
    "jobs", "kill", "let", "logout", "mapfile", "printf", "pwd", "read", "readarray", "return", "set", "setopt",
    "shopt", "suspend", "test", "times", "trap", "true", "type", "ulimit", "umask", "unalias", "unsetopt", "wait",
    "zstyle",
})  # fmt: skip
"""Builtins that start nothing and change nothing that decides what is started; `set` only as `set --`."""
_SEQUENCE = frozenset({"cd", "export", "pushd", "source", "."})
"""Commands after which `&&` is a mere "and then"."""
_CHANGES = frozenset({
    ".", "cd", "declare", "eval", "exec", "export", "local", "popd", "pushd", "readonly", "set", "shift", "source",
    "typeset", "unset",
})  # fmt: skip
"""Commands that change the shell that they run in, beside assignments and functions."""
_REDIRECTED = re.compile(r"(?:[ \t]*\d*(?:>>?|<)&?[ \t]*[^\s|&;<>()]+)*")
_APART = re.compile(rf"{_REDIRECTED.pattern}[ \t]*(?:\|(?!\|)|&(?![&>]))")
"""Behind a command that runs in a subshell, as one of a pipeline or in the background."""
_FILLING = {"getopts": "", "let": "", "mapfile": "dnOsuCc", "printf": "", "read": "adinNptu", "readarray": "dnOsuCc"}
"""Builtins that fill variables, with the letters of options that have a value of their own."""
_STARTED = re.compile(r"\$\{(\w+|@)", re.ASCII)
"""Variables in the name of a command."""
_FOLLOWING = re.compile("-[HLP]")
"""Options of `find` before its directories."""
_SORTING = frozenset({"cat", "grep", "head", "sort", "tail", "uniq"})
"""Programs behind which a list of files has no others."""
_OPENERS = {"if": "fi", "while": "done", "until": "done", "{": "}"}
_BETWEEN = frozenset({"then", "else", "elif", "do", "!", "coproc"})
_TESTS = frozenset({"[", "test", "[["})
_UNQUOTED = re.compile(r"[ \t]+-n[ \t]+\$(?:\w+|\{\w+\})[ \t]*(?:\]|(?=[;\n&|]))", re.ASCII)
"""`[ -n $NAME ]` without quotes: it holds where the variable is empty, too, and fails where that is several words."""
_JOINTS = frozenset({"-a", "-o", "&&", "||"})
SUCCEEDS = "-succeeds"
"""In place of a test's operator: whether the command that the next word names succeeds, as `true` does."""
_FLAG = re.compile(r"true|false|:|\$\{\w+\}")
"""A command in a condition that may be one of these builtins, as in `if $VERBOSE`."""
_UNTOLD = frozenset(f"-{letter}" for letter in "abcdghkLpStuwGNO")
"""Tests of what is not known of files and descriptors."""
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|<>|<&|>&|>>|>\||[<>](?!\()")
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_LIST = r"[ \t\n]*(\{[^}]*\}?|[^\n;)]*)"
_ALTERNATIVE = re.compile(rf"[ \t]*\|\|{_LIST}")
"""What runs where a command fails."""
_MERE_WORDS = re.compile(
    r"[ \t]*&&[ \t\n]*(?:echo|printf|true|:|\[|test|export|return|[A-Za-z_]\w*=)(?![\w.-])[^\n;&|]*(?:[\n;]|$)"
)
"""What runs where a command succeeds, and is no program."""
_ONE_LIST = re.compile(r"(?:#[^\n]*\n|[ \t\n])*+(?:[^\n;|&#]|&&[ \t\n]*+)++\n*+")
"""A text that has nothing else than `A && B && C`: it is there for the last of them, and nothing is made of it without
the others."""
_ENDLESS = re.compile(r"[ \t]+(?:true|:)[ \t]*[;\n]")
_OPEN = re.compile(r"[$*?\[]")
"""What may make no word of one."""
_SAYS = re.compile(r"(?:true|:|echo|printf)(?![\w.-])[^&|]*")
_GIVES_UP = re.compile(r"(?<![\w.-])(?:exit|return|kill|\w*(?:die|fail|abort|error|fatal|panic|usage))(?![\w.-])", re.I)
_BODY = r"((?:(?!\b(?:if|fi|else|elif)\b).)*+)"
_BRANCHES = re.compile(rf"[ \t]*[;\n]\s*then\b{_BODY}(?:\belse\b{_BODY})?\bfi\b", re.DOTALL)
"""The rest of an `if` without another one in it: what is done where its condition holds, and where it does not."""
_NOUGHT = r"[ \t]+[\"']?0[\"']?(?:[ \t]+\]\]?)?[ \t]*"
_STATUS = r"(?:\[\[?|test)[ \t]+\"?\$\?\"?[ \t]+"
_CHECKED = re.compile(
    rf"[ \t]*[;\n]\s*(?:if[ \t]+{_STATUS}(?:-ne|!=){_NOUGHT}[;\n]\s*then\b{_BODY}"
    rf"|{_STATUS}(?:(?:-ne|!=){_NOUGHT}&&|(?:-eq|==?){_NOUGHT}\|\|){_LIST})",
    re.DOTALL,
)
"""A test of `$?` behind a command, up to what is done where that has failed."""
_CPU = re.compile(r"/proc/cpuinfo|\blscpu\b|\buname -[mp]\b|\$\(arch\)|\bcpuid\b")
"""How scripts find out what the CPU has."""


def read_commands(text: str) -> tuple[ShellCommand, ...]:
    """The simple commands of `text` in their order, those that start nothing left out.

    Text that is no shell's, or that ends within a quote, gives what stands before, and one command that cannot be told.
    """
    reader = _Reader(text.replace("\\\n", ""))
    try:
        reader.read()
    except (UnreadableError, RecursionError):
        reader.add((UNKNOWN,), conditional=True)
    return tuple(_with_short_names(_without_idle(reader.commands)))


def _without_idle(commands: list[ShellCommand]) -> list[ShellCommand]:
    """The commands without conditions on which none of them depends."""
    used: set[int] = set()
    kept = []
    for command in reversed(commands):
        if not command.decides or command.decides in used:
            used.update(map(abs, command.when))
            kept.append(command)
    return kept[::-1]


def with_whole_names(commands: Iterable[ShellCommand]) -> Iterator[ShellCommand]:
    """The commands, each with the name of its function."""
    name = ""
    for command in commands:
        name = name if command.function == SAME else command.function
        yield structs.replace(command, function=name) if command.function == SAME else command


def _with_short_names(commands: Iterable[ShellCommand]) -> Iterator[ShellCommand]:
    """The commands, with SAME for the name of a function that the one before has, too."""
    before = ""
    for command in commands:
        same = command.function and command.function == before
        yield structs.replace(command, function=SAME) if same else command
        before = command.function


def without_conditions(commands: tuple[ShellCommand, ...]) -> tuple[ShellCommand, ...]:
    """The commands without what they depend on: each counts as one that runs only where something went one way."""
    whole = with_whole_names(commands)
    kept = (each for each in whole if not each.decides and not _is_of_condition(each) and not _is_of_loop(each))
    vague = (structs.replace(each, conditional=each.conditional or bool(each.when), when=()) for each in kept)
    return tuple(_with_short_names(vague))


def _is_of_condition(command: ShellCommand) -> bool:
    """Whether it only tells under which condition the text ends."""
    return command.words in _OF_CONDITION or bool(command.when and command.words[0] == "exit")


def _is_of_loop(command: ShellCommand) -> bool:
    """Whether it only tells what one round of a loop does."""
    return command.words[0] in (LOOP, DONE) or command.function.startswith(f"{LOOP} ")


def asks_cpu(text: str) -> bool:
    """Whether a shell's text looks at what the CPU has."""
    return bool(_CPU.search(text))


class _Frame:
    """A compound command that is open."""

    __slots__ = (
        "begun", "body", "closer", "condition", "conditional", "denied", "doubtful", "ended", "exhausted", "fallen",
        "function", "inside", "listed", "looped", "opened", "patterns", "piped", "tests", "when",
    )  # fmt: skip

    def __init__(self, closer: str, conditional: bool, function: str, when: tuple[int, ...] = ()) -> None:
        self.closer = closer
        self.conditional = conditional
        self.function = function
        self.inside = self.when = when
        """The conditions of the whole, and those of the branch at hand."""
        self.denied: tuple[int, ...] = ()
        """The conditions of the branches before, denied."""
        self.condition: list[str] = []
        """What is read of the next branch's condition, as loader/script_tests.py takes it."""
        self.ended = False
        """What comes in it stands in a line of its own: the last one decides."""
        self.exhausted = False
        """A branch without a condition has come: no later one runs."""
        self.fallen = False
        """A branch goes on into the next one (`;&`), or with its patterns: the later ones do not exclude each other."""
        self.looped = False
        """It may run again, when conditions have changed."""
        self.patterns = False
        """The patterns of a branch come next."""
        self.tests = False
        """What comes is the condition of `if` or a loop."""
        self.begun = 0
        """How many commands stand before it."""
        self.piped = False
        """It stands behind `|`,"""
        self.listed = ""
        """and what comes from there are files, by such a pattern."""
        self.doubtful = False
        """It may not run at all."""
        self.opened = self.body = 0
        """Where in the text the condition of a `while` begins, and what it does in each round."""

    def note(self, *words: str) -> None:
        """Takes in a part of the condition."""
        if self.ended:
            self.condition.clear()
            self.ended = False
        self.condition += words


class _Reader(WordReader):
    """Reads one text from the beginning to its end."""

    def __init__(self, text: str, nested: int = 0) -> None:
        super().__init__(text, nested)
        self._open = [_Frame("", False, "")]
        self._one_list = not nested and _ONE_LIST.fullmatch(text) is not None
        self._naming = ""
        """The function whose body comes next."""
        self._uncertain = False
        """The command at hand depends on how those before it in its list ended,"""
        self._listed: tuple[int, ...] = ()
        """and on these tests there,"""
        self._joint = ""
        """which this joins."""
        self._negated = False
        """What comes in the list is negated (`! [ X ] && Y`)."""
        self._behind = False
        """A compound command has just ended, or arithmetic."""
        self._piped = False
        """The command at hand stands behind `|`."""
        self._pipefail = False
        """A pipeline fails where any part of it does."""
        self._given = range(0)
        """Where the commands are kept of the last substitution in the command at hand, where they are one pipeline."""
        self._listed_files = ""
        """The files that come from a pipeline so far, as a pattern."""
        self._fed = False
        """Standard input of the command at hand is redirected."""
        self._functions: set[str] = set()
        self._is_round = False
        """What is read is what a loop does in each round."""
        self._conditions = 0
        self._here: list[str] = []
        """Delimiters of here-documents that begin on the next line, as they are written."""

    def add(
        self, words: tuple[str, ...], conditional: bool, forgiven: bool = False, when: tuple[int, ...] = ()
    ) -> None:
        """Keep a command, unless there are too many."""
        if len(self.commands) > COMMANDS_LIMIT:
            return
        if len(self.commands) == COMMANDS_LIMIT:
            words, when = (UNKNOWN,), ()
        kept = tuple(map(_shortened, words[:_WORDS_LIMIT]))
        self.commands.append(ShellCommand(kept, conditional, self._open[-1].function, forgiven, when))

    def _decide(self, words: list[str]) -> int:
        """Keep a condition; its number, or 0 where there are too many commands."""
        frame = self._open[-1]
        if len(self.commands) >= COMMANDS_LIMIT:
            return 0
        self._conditions += 1
        told = UNKNOWN not in words[1] if words[0] == "case" else not _TESTS.isdisjoint(words)
        if frame.looped or len(words) > _WORDS_LIMIT or not told:
            return self._conditions  # nobody will find out, but that branches exclude each other
        kept = tuple(map(_shortened, words))
        when = (*frame.when, *self._listed)
        self.commands.append(ShellCommand(kept, function=frame.function, when=when, decides=self._conditions))
        return self._conditions

    def read(self) -> None:
        """Read all commands."""
        text = self._text
        while self._skip_blanks() < len(text):
            if self._open[-1].patterns:
                self._patterns()
            elif text[self._at] in "\n;&|()":
                self._operator()
            else:
                self._command()

    # Lists and compound commands

    def _operator(self) -> None:
        text, at = self._text, self._at
        if text.startswith("((", at):  # arithmetic
            self._at = closed(text, at + 1, "(", ")")
            for match in ASSIGNED.finditer(text, at, self._at):
                self._keep((f"{match[1]}={UNKNOWN}",), self._uncertain)
            self._note(OPEN)
            self._behind = True
            return
        two = text[at : at + 2]
        self._at += 2 if two in ("&&", "||", ";;", ";&", "|&", "&>") else 1
        if text[at] not in "()":
            self._piped = text[at] == "|" and two != "||"
        if text[at] == "\n":
            self._skip_documents()
        if two in (";;", ";&"):
            onward = text.startswith("&", self._at)  # `;;&`
            self._at += onward
            self._next_branch(falls_through=two == ";&" or onward)
        elif two in ("&&", "||"):
            self._join(two)
        elif text[at] == "(":
            self._enter(")", conditional=False)
        elif text[at] == ")":
            self._leave(")")
        elif text[at] == "|":
            self._note("|")
        else:
            self._end_list()

    def _join(self, joint: str) -> None:
        """`&&` or `||` behind something else than a test, or in a condition."""
        self._skip_lines()
        if self._open[-1].tests:
            self._note(joint)
        elif joint == "||" or self._behind:
            self._uncertain, self._listed, self._behind = True, (), False
        elif self._joint == "||":
            self._listed = ()

    def _skip_lines(self) -> None:
        """The command behind `&&` may stand on a later line."""
        while self._skip_blanks() < len(self._text) and self._text[self._at] == "\n" and not self._here:
            self._at += 1

    def _end_list(self) -> None:
        self._uncertain, self._listed, self._joint, self._negated, self._behind = False, (), "", False, False
        self._listed_files = ""
        self._open[-1].ended = True

    def _note(self, *words: str) -> None:
        """Takes in a part of the condition of `if`, where that is read."""
        if self._open[-1].tests:
            self._open[-1].note(*words)

    def _enter(self, closer: str, conditional: bool) -> None:
        above = self._open[-1]
        if len(self._open) > 200:
            raise UnreadableError
        piped = self._piped and not self._naming
        if self._naming:
            if len(self._open) == 1 and not self._uncertain:
                self._forget(self._naming)
            self._functions.add(self._naming)
            self._open.append(_Frame(closer, conditional, self._naming))
        else:
            inherited = above.conditional or self._uncertain
            frame = _Frame(closer, conditional or inherited, above.function, (*above.when, *self._listed))
            frame.doubtful = inherited
            frame.looped = above.looped or closer == "done"
            self._open.append(frame)
        self._open[-1].begun, self._open[-1].piped = len(self.commands), piped
        self._open[-1].listed = self._listed_files if piped else ""
        self._naming, self._piped = "", False
        self._end_list()

    def _forget(self, function: str) -> None:
        """What a later definition takes the place of, unless something may have called it in between."""
        outside = max((at for at, command in enumerate(self.commands) if not command.function), default=-1)
        later = self.commands[outside + 1 :]
        self.commands[outside + 1 :] = [command for command in later if command.function != function]

    def _leave(self, closer: str) -> None:
        frame = self._open[-1]
        if frame.closer == closer:
            self._open.pop()
            own = (command.function for command in self.commands[frame.begun :] if not command.decides)
            if frame.function != self._open[-1].function and frame.function not in own:
                self.commands.append(ShellCommand(_NOTHING, function=frame.function))
            if frame.function == self._open[-1].function:
                self._forgive(frame)
            if closer == "done":
                self._end_loop(frame)
            if closer == ")" or frame.piped or _APART.match(self._text, self._at):
                self._set_apart(frame.begun, frame.function, frame.inside)
        self._end_list()
        self._open[-1].ended = False
        self._note(OPEN)  # a compound command in a condition
        self._behind = True

    def _forgive(self, ended: _Frame) -> None:
        """The text may go on where a compound command fails that has just ended, whichever command in it does."""
        at = self._at
        if redirected := _REDIRECTED.match(self._text, at):
            self._at = redirected.end()
        forgiven, mark = self._failure()
        self._at = at
        if not forgiven and (mark not in (LOOSE, JOINED) or self._one_list):
            return
        for index, command in enumerate(self.commands[ended.begun :], ended.begun):
            if command.function == ended.function and not command.decides:
                self.commands[index] = structs.replace(command, forgiven=True)

    def _end_loop(self, loop: _Frame) -> None:
        if any(command.words == _SHIFT_SOME for command in self.commands[loop.begun :]):
            # Each round begins with what the ones before have left.
            self.commands.insert(loop.begun, ShellCommand(_SHIFT_SOME, True, loop.function, when=loop.inside))
        self._repeat(loop)
        if loop.body and not (loop.piped or self._nested or self._open[-1].looped):
            self._keep_round(loop)

    def _repeat(self, loop: _Frame) -> None:
        """What one round of a loop sets, the next one may start."""
        body = [command for command in self.commands[loop.begun :] if command.function == loop.function]
        names = (command.words[0] for command in body if not _changed(command))
        started = {variable for name in names for variable in _STARTED.findall(name)}
        if not started.isdisjoint(map(_changed, body)):
            for command in body:
                self.add(command.words, True, command.forgiven, command.when)

    def _keep_round(self, loop: _Frame) -> None:
        """What one round of a loop over the arguments does, for who knows these."""
        condition, body = (
            self._text[loop.opened : loop.body - len("do")],
            self._text[loop.body : self._at - len("done")],
        )
        if "shift" not in body:
            return
        text = f"if {condition}\nthen\n{body}\n{AGAIN}=1\nfi"
        inner = self._inside(text)
        inner._is_round, inner._conditions = True, self._conditions
        inner.read()
        self._conditions = inner._conditions
        if not inner.commands[0].decides:  # nobody will find out
            return
        if len(self.commands) + len(inner.commands) + 2 > COMMANDS_LIMIT:
            return
        name = f"{LOOP} {crc32(text.encode('utf-8', 'surrogateescape')):x}"
        around = ShellCommand((LOOP, name), loop.doubtful, loop.function, when=loop.inside)
        self.commands.insert(loop.begun, around)
        self.commands.append(structs.replace(around, words=(DONE, name)))
        self.commands += [structs.replace(each, function=each.function or name) for each in inner.commands]

    def _set_apart(self, begun: int, function: str, when: tuple[int, ...]) -> None:
        """What has been kept since then runs in a subshell."""
        if any(self._is_change(command.words) for command in self.commands[begun:] if not command.decides):
            self.commands.insert(begun, ShellCommand((OPENS,), function=function, when=when))
            self.commands.append(ShellCommand((CLOSES,), function=function, when=when))

    def _is_change(self, words: tuple[str, ...]) -> bool:
        """Whether a command changes its shell, or ends it."""
        name = words[0]
        return bool(ASSIGNMENT.match(name)) or name in _CHANGES or name == "exit" or name in self._functions

    def _branch(self, words: list[str]) -> None:
        """What comes is the branch of `if` or `case` with this condition; of the last one with none."""
        frame = self._open[-1]
        if frame.fallen:
            frame.when = frame.inside
            return
        frame.when = (*frame.inside, *frame.denied)
        if not words:
            frame.exhausted = True
            return
        number = self._decide(words)
        if number:
            frame.when = (*frame.when, number)
            frame.denied = (*frame.denied, -number)
        else:
            frame.conditional = True

    def _next_branch(self, falls_through: bool) -> None:
        frame = self._open[-1]
        if frame.closer == "esac":
            frame.patterns = True
            frame.fallen |= falls_through
            frame.conditional |= falls_through or frame.exhausted
        self._end_list()

    def _patterns(self) -> None:
        """The patterns of one branch of `case`, up to the parenthesis behind them; or `esac`."""
        text, frame = self._text, self._open[-1]
        if text[self._at] in "\n(|;":
            self._at += 1
        elif text[self._at] == ")":
            self._at += 1
            frame.patterns = False
            subject, *patterns = frame.condition
            self._branch([] if "*" in patterns else ["case", subject, *patterns])
            del frame.condition[1:]
        else:
            begun, word = self._at, self._word()
            if text[begun : self._at] == "esac":
                self._leave("esac")
            elif self._at > begun:  # it may be empty: `""`
                frame.condition.append(word)
            elif self._at < len(text) and text[self._at] in "<>&`":
                self._at += 1  # no shell's text

    def _skip_documents(self) -> None:
        for written in self._here:
            delimiter = re.sub(r"[\"'\\]", "", written)
            end = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE).search(self._text, self._at)
            if not end:
                raise UnreadableError
            document, self._at = self._text[self._at : end.start()], end.end()
            if delimiter == written:
                self._substitutions(document)
        self._here = []

    # Simple commands

    def _command(self) -> None:
        begun, behind, self._behind, self._given = self._at, self._behind, False, range(0)
        first = self._word()
        plain = self._text[begun : self._at]
        if self._at == begun or self._is_descriptor(first):
            self._redirection()
            self._behind = behind
        elif plain != first or not self._reserved(plain):
            self._simple(first)

    def _reserved(self, word: str) -> bool:
        """Whether `word` is one of the shell's own, which is dealt with then."""
        if word == "time":
            self._expect("-p")
        elif word == "!":
            self._note(word)
            self._negated = not self._negated
        elif word in _BETWEEN:
            self._go_between(word)
        elif word in _OPENERS:
            endless = word == "while" and _ENDLESS.match(self._text, self._at)
            self._enter(_OPENERS[word], word in ("while", "until") and not endless)
            self._open[-1].tests = word != "{"
            self._open[-1].opened = self._at if word == "while" else 0
        elif word in ("fi", "done", "}"):
            self._leave(word)
        elif word in ("for", "select"):
            self._loop()
        elif word == "case":
            self._skip_blanks()
            subject = self._word()
            self._enter("esac", False)
            self._open[-1].condition.append(subject)
            self._open[-1].patterns = True
            self._expect("in")
        elif word == "esac":
            self._leave(word)
        elif word == "[[":
            self._tested(["[[", *self._test()])
        elif word == "function":
            self._skip_blanks()
            self._naming = self._word()
            if match := _FUNCTION.match(self._text, self._at):
                self._at = match.end()
        elif match := _FUNCTION.match(self._text, self._at):
            self._at = match.end()
            self._naming = word
        else:
            return False
        return True

    def _go_between(self, word: str) -> None:
        frame = self._open[-1]
        if word == "then" and frame.tests:
            self._branch(["if", *frame.condition])
        elif word in ("else", "elif"):
            self._branch([])
            frame.condition.clear()
        frame.tests = word == "elif"
        if word == "do" and frame.opened:
            frame.body = self._at
        self._end_list()

    def _tested(self, test: list[str]) -> None:
        """Behind a test, from its opening to its closing bracket: what it decides of its list."""
        alone = _JOINTS.isdisjoint(test)  # else another part of it may decide
        if alone and (not _UNTOLD.isdisjoint(test[1:2]) or "=~" in test or any(UNKNOWN in word for word in test)):
            test = [OPEN]
        if self._open[-1].tests:
            self._note(*test)
            return
        joint = self._text[self._at : self._at + 2]
        negated, self._negated = self._negated, False
        if self._uncertain or joint not in ("&&", "||"):
            return
        self._at += 2
        self._skip_lines()
        number = self._decide(["if", *(["!"] if negated else []), *test]) if self._joint in ("", joint) else 0
        self._joint = joint
        self._listed = (*self._listed, number if joint == "&&" else -number) if number else ()
        self._uncertain = not number

    def _expect(self, word: str) -> bool:
        """Go past `word` where it comes next, on this line or a later one."""
        match = re.compile(rf"[ \t\n]*{word}(?![^ \t\n;])").match(self._text, self._at)
        if match:
            self._at = match.end()
        return match is not None

    def _loop(self) -> None:
        """`for NAME in WORDS`: the name may have each of the values."""
        self._skip_blanks()
        surely = False
        if self._text.startswith("((", self._at):
            self._at = closed(self._text, self._at + 1, "(", ")")
        else:
            name = self._word()
            values = self._words() if self._expect("in") else ["${@}"]
            surely = any(not _OPEN.search(value) for value in values)
            if NAME.fullmatch(name):
                self._keep(("unset", name), conditional=False)  # what it was before is none of its values
                for index, value in enumerate(values):
                    self._keep((f"{name}={value}",), conditional=index > 0)
        self._enter("done", not surely)

    def _test(self) -> list[str]:
        """The words of `[[`, with the bracket that closes it."""
        words: list[str] = []
        while self._skip_blanks() < len(self._text):
            begun = self._at
            words.append(self._word())
            if self._text[begun : self._at] == "]]":
                self._skip_blanks()
                break
            if self._at == begun:
                two = self._text[begun : begun + 2]
                words[-1] = two if two in ("&&", "||") else self._text[begun]
                self._at += len(words[-1])
        return words

    def _simple(self, first: str) -> None:
        self._fed = False
        if first in _TESTS and (unquoted := _UNQUOTED.match(self._text, self._at)):
            self._at = unquoted.end()
            self._tested([OPEN])
            return
        words = [first, *self._words()]
        name = next((word for word in words if not ASSIGNMENT.match(word)), "")
        uncertain = self._uncertain
        if name in _TESTS:
            if words[-1] != "]":
                words.append("]")
            self._tested(["[", *words[words.index(name) + 1 :]])
            return
        reads = (self._fed or self._piped) and posixpath.basename(name) in SHELLS
        if reads and all(word[0] == "-" for word in words[1:] if word):
            words.append(UNKNOWN)  # the commands come from there
        if name == "shift" and self._open[-1].looped:
            words = [*_SHIFT_SOME]
        if name == "set":
            if any(option[0] == "-" and name == "pipefail" for option, name in pairwise(words) if option):
                self._pipefail = True
                self._keep(PIPEFAIL, uncertain)
            if option := _errexit(words):
                self._keep(("set", option), uncertain)
            words = _set_arguments(words)
        begun, frame = len(self.commands), self._open[-1]
        if name not in _SORTING:
            self._listed_files = _files_found(words) if name == "find" else ""
        self._fill(name, words)
        self._defaults.clear()
        if name in ("break", "continue") and frame.looped:
            self._doubt_rest()
        if name == "trap":
            self._trap(words)
        elif name == "alias":
            self._alias(words)
        elif words[:2] == ["set", "--"] or name not in _SILENT or self._is_told(name):
            forgiven, mark = self._failure()
            if not name:
                self._take_given(uncertain or frame.conditional, forgiven, mark)
            elif mark and name not in _CHANGES:
                self._keep((mark,), uncertain)
            self._keep(tuple(words), uncertain, forgiven)
        if name == "set" and self._open[-1].looped and "${@}" in words:
            for _ in range(_ROUNDS):  # each round begins with what the ones before have left
                self._keep(tuple(words), conditional=True)
        if self._piped or _APART.match(self._text, self._at):
            self._set_apart(begun, frame.function, (*frame.when, *self._listed))
        self._note(*(("[", SUCCEEDS, name, "]") if words == [name] and _FLAG.fullmatch(name) else (OPEN,)))
        self._negated = False
        step = name in _SEQUENCE or words[1:2] == ["activate"]  # an environment of conda
        in_turn = (step and self._joint != "||") or self._one_list
        if self._text.startswith("&&", self._at) and name and not in_turn:
            self._uncertain = True
        elif not (uncertain or self._piped or self._listed or len(self._open) > 1) and self._is_end():
            self._at = len(self._text) if _ends(name, words) else self._at

    def _fill(self, name: str, words: list[str]) -> None:
        """What the words of a command, and what it does, assign to variables."""
        frame, filled = self._open[-1], _filled(name, words)
        for assignment in (*self._defaults, *(f"{variable}={UNKNOWN}" for variable in filled)):
            self._keep((assignment,), self._uncertain)
        if name == "read" and frame.listed and len(filled) == 1:  # what it was before is none of its values
            for kept in (("unset", filled[0]), (f"{filled[0]}={frame.listed}",)):
                self.add(kept, frame.doubtful, when=frame.when)

    def _doubt_rest(self) -> None:
        """What stands behind `break` in its loop may not run."""
        for frame in reversed(self._open):
            frame.conditional = True
            if frame.closer == "done":
                return

    def _trap(self, words: list[str]) -> None:
        """`trap TEXT SIGNAL`: the text runs if that comes, or at the end."""
        operands = words[words.index("trap") + 1 :]
        operands = operands[operands[:1] == ["--"] :]
        if len(operands) > 1 and operands[0] not in ("", "-") and UNKNOWN not in operands[0]:
            self._keep_inside(self._commands_of(operands[0].replace("$$", "$")))

    def _alias(self, words: list[str]) -> None:
        """`alias NAME=TEXT`: some shells take it for a function."""
        for word in words[words.index("alias") + 1 :]:
            name, equals, text = word.partition("=")
            if equals and UNKNOWN not in text:
                for command in self._commands_of(text.replace("$$", "$") + ' "$@"'):
                    self.commands.append(structs.replace(command, conditional=True, function=name, when=()))

    def _is_told(self, name: str) -> bool:
        """Whether it matters of a command that starts nothing: of `exit` where it may be told that it runs, though not
        here, and of what ends a round.
        """
        frame = self._open[-1]
        if name == "exit":
            return bool(frame.when or self._listed or frame.function)
        return name in ("break", "continue") and self._is_round and not frame.looped

    def _failure(self) -> tuple[bool, str]:
        """Whether the text goes on where the command at hand fails, and the mark that tells what comes of it."""
        frame = self._open[-1]
        alone = frame.closer == "fi" and frame.condition == ["!"] * self._negated
        if frame.tests and alone and (branches := _BRANCHES.match(self._text, self._at)):
            return (False, NEEDED) if _GIVES_UP.search(branches[1 if self._negated else 2] or "") else (True, "")
        forgiven = frame.tests or self._negated or self._has_alternative()
        return forgiven, "" if forgiven else self._mark()

    def _take_given(self, conditional: bool, forgiven: bool, mark: str) -> None:
        """The command at hand, which does no more than assign, fails where its last substitution does."""
        for index in self._given:
            self.commands[index] = structs.replace(self.commands[index], conditional=conditional, forgiven=forgiven)
        last = next((index for index in reversed(self._given) if self.commands[index].words != (CLOSES,)), None)
        if mark and last is not None:
            # `&&` does not stand between the substitution and what is kept next.
            words = (LOOSE if mark == JOINED else mark,)
            self.commands.insert(last, structs.replace(self.commands[last], words=words))

    def _mark(self) -> str:
        """What there is to tell of the failure of the command at hand."""
        if (checked := _CHECKED.match(self._text, self._at)) and _GIVES_UP.search(checked[1] or checked[2]):
            return NEEDED
        apart = _APART.match(self._text, self._at)
        if apart:
            return LOOSE if apart[0][-1] == "&" or not self._pipefail else ""
        if _MERE_WORDS.match(self._text, self._at):
            return LOOSE
        return {"&&": JOINED, "||": NEEDED}.get(self._text[self._at : self._at + 2], "")

    def _has_alternative(self) -> bool:
        """Whether something else runs where the command at hand fails."""
        match = _ALTERNATIVE.match(self._text, self._at)
        return match is not None and bool(_SAYS.fullmatch(match[1].strip()) or not _GIVES_UP.search(match[1]))

    def _is_end(self) -> bool:
        """Whether a line or a `;` ends the command at hand, so that it runs in this shell."""
        return self._text[self._at : self._at + 1] in ("", "\n", ";")

    def _keep(self, words: tuple[str, ...], conditional: bool, forgiven: bool = False) -> None:
        frame = self._open[-1]
        self.add(words, conditional or frame.conditional, forgiven, (*frame.when, *self._listed))

    def _words(self) -> list[str]:
        """The words up to the end of the command; redirections are no part of it."""
        words: list[str] = []
        while self._skip_blanks() < len(self._text):
            if self._text[self._at] in "\n;|)" or self._is_and():
                break
            begun = self._at
            word = self._word()
            if self._at == begun:
                self._redirection()
            elif not self._is_descriptor(word):
                words.append(word)
        return words

    def _is_descriptor(self, word: str) -> bool:
        """Whether the word that ends here is the number of a descriptor, of which a redirection tells."""
        is_one = word.isdigit() or (word[:1] == "{" and bool(NAME.fullmatch(word[1:-1])))
        return is_one and self._text[self._at : self._at + 1] in ("<", ">")

    def _is_and(self) -> bool:
        return self._text[self._at] == "&" and not self._text.startswith("&>", self._at)

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self._text, self._at)
        if not match:
            self._at += 1  # no shell's text
            return
        self._at = match.end()
        self._fed |= match[0][0] == "<"
        begun = self._skip_blanks()
        self._word()
        if match[0] in ("<<", "<<-"):
            self._here.append(self._text[begun : self._at])

    def _inside(self, text: str) -> Self:
        inner = super()._inside(text)
        inner._pipefail = self._pipefail
        return inner

    def _keep_inside(self, commands: Iterable[ShellCommand], pipeline: bool = False) -> None:
        begun, frame = len(self.commands), self._open[-1]
        for command in commands:
            self._keep(command.words, conditional=True)
        self._set_apart(begun, frame.function, (*frame.when, *self._listed))
        self._given = range(begun, len(self.commands)) if pipeline else range(0)


def _shortened(word: str) -> str:
    """A word as it is kept: of a long one no more than the name to which it is assigned."""
    if len(word) <= _WORD_LENGTH:
        return word
    match = ASSIGNMENT.match(word)
    return f"{match[0]}{UNKNOWN}" if match and match.end() <= _WORD_LENGTH else UNKNOWN


def _errexit(words: list[str]) -> str:
    """`-e` where `set` turns on that the shell ends where a command fails, `+e` where it turns that off."""
    for word, following in pairwise((*words[1:], "")):
        if word[:1] not in ("-", "+") or word.startswith("--"):
            break
        if "e" in word or ("o" in word and following == "errexit"):
            return f"{word[0]}e"
    return ""


def _set_arguments(words: list[str]) -> list[str]:
    """`set -e -- WORDS` and `set WORDS` as `set -- WORDS`; without words, as it stands."""
    at = 1
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] != "--":
        at += 1 + words[at].count("o")  # `-euo pipefail`: each has a name behind it
    if at >= len(words):
        return words
    return ["set", "--", *words[at + (words[at] == "--") :]]


def _filled(name: str, words: list[str]) -> list[str]:
    """Variables that a builtin gives values which only running tells."""
    if name not in _FILLING:
        return []
    operands: list[str] = []
    index = words.index(name) + 1
    while index < len(words):
        if name == "printf" and words[index] == "-v":
            return words[index + 1 : index + 2]
        if words[index].startswith("-") and not operands:
            index += 2 if words[index][-1:] in _FILLING[name] else 1
            continue
        operands.append(words[index])
        index += 1
    if name == "getopts":
        return ["OPTARG", "OPTIND", *operands[1:2]]
    if name == "let":
        return [match[1] for word in operands for match in ASSIGNED.finditer(word)]
    default = {"read": ["REPLY"], "printf": []}.get(name, ["MAPFILE"])
    return [word for word in operands if NAME.fullmatch(word)] if name != "printf" and operands else default


def _changed(command: ShellCommand) -> str:
    """The variable that a command sets, "@" for the arguments; empty where that is none."""
    name = command.words[0]
    match = NAME.match(name) if ASSIGNMENT.match(name) else None
    return match[0] if match else "@" if name == "set" else ""


def _files_found(words: list[str]) -> str:
    """What `find` lists, as a pattern; empty where that is not one directory."""
    behind = words[words.index("find") + 1 :]
    places = list(takewhile(lambda word: word[:1] not in ("-", "!", "("), dropwhile(_FOLLOWING.fullmatch, behind)))
    told = len(places) == 1 and UNKNOWN not in places[0] and places[0].strip("/.") and "-exec" not in words
    return f"{places[0].rstrip('/')}/{BELOW}" if told else ""


def _ends(name: str, words: list[str]) -> bool:
    """Whether nothing behind a command runs: the shell ends, or becomes a program that the text names."""
    if name == "exec":
        behind = words[words.index(name) + 1 :]
        return bool(behind) and not behind[0].startswith(("-", "$"))
    return name == "exit"
