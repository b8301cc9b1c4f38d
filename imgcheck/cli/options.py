"""Options that several commands share, and how each becomes the object that the other packages take."""

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from imgcheck.cli.files import refuse_unwritable, write
from imgcheck.errors import UsageError
from imgcheck.report.width import columns

if TYPE_CHECKING:
    from imgcheck.knowledge import Knowledge
    from imgcheck.profile.store import Store
    from imgcheck.sources.options import SourceOptions

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Output(NamedTuple):
    """One `-o FORMAT[=FILE]`; no file means standard output."""

    format: str
    file: Path | None


_LISTED = "listed"
"""The attribute of an option that reads the names for its help."""
VALUES = "words"
"""The attribute of an option that names what may stand behind it, for shell completion."""
LIST_OPTIONS = "--list-options"
"""Makes a command raise Listed instead of doing anything: the completion scripts are written from its parser."""


class Listed(Exception):  # noqa: N818 - no error, but the way out of a command
    """Carries the parser of a command that was asked for LIST_OPTIONS."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


REPORT_FORMATS = ("table", "json", "sarif", "junit", "markdown", "github", "gitlab")
"""What `-o` of a check may name."""

_ELSEWHERE = {"-f": "-o", "--format": "-o"}
"""Options of Docker, trivy and others to ours of the same meaning."""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, as all others are; argparse puts the whole usage before them."""

    takes_command = False
    """A command may stand behind `--`, which the parser never sees."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help tells more")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, rest = self.parse_known_args(args, namespace)
        if rest:
            meant = self._meant(rest, parsed)
            raise UsageError(f"unrecognized arguments: {' '.join(rest)}", f"{meant}{self.prog} --help tells more")
        return parsed

    def format_help(self) -> str:
        """With the command behind `--` in the usage, and the names that an option may take from the data."""
        for action in self._actions:
            listed = getattr(action, _LISTED, None)
            if listed and action.help:
                action.help = f"{action.help}: {', '.join(listed())}"
                setattr(action, _LISTED, None)  # the same parser may be asked again
        usage, blank, rest = super().format_help().partition("\n\n")
        return f"{usage}{' [-- CMD ...]' if self.takes_command else ''}{blank}{rest}"

    def _meant(self, rest: Sequence[str], parsed: argparse.Namespace) -> str:
        """The beginning of a hint: what the first word that no option or argument takes may have been meant for."""
        from imgcheck.spelling import misspelt

        word = next((word for word in rest if word.startswith("-") and word != "-"), "").partition("=")[0]
        if not word:
            files = getattr(parsed, "host_probe", None)
            return "--host-probe takes files that `imgcheck probe -o HOST.json` makes; " if files else ""
        known = sorted(name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS)
        near = [name for name in known if name == _ELSEWHERE.get(word)] or misspelt(word, known, 1)
        near = near or [name for name in known if len(word) > 4 and name.startswith(word)]
        return f"did you mean {' or '.join(near)}? " if near else ""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Breaks no name at its hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _List(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        raise Listed(parser)


def parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A command's parser; `examples` are shown as they are, below the options."""
    made = _Parser(
        prog=f"imgcheck {name}",
        description=textwrap.fill(description, min(columns(80), 100) - 2),
        epilog="examples:\n" + "\n".join("  " + line for line in examples.strip().splitlines()),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    made.add_argument(LIST_OPTIONS, action=_List, nargs=0, help=argparse.SUPPRESS)
    return made


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """How to reach and choose an image."""
    group = parser.add_argument_group("where the image comes from")
    group.add_argument(
        "--platform", metavar="OS/ARCH", type=stated, help="take this platform of a multi-platform image"
    )
    group.add_argument("--plain-http", action="store_true", help="speak HTTP to the registry")
    group.add_argument("--insecure", action="store_true", help="do not verify the registry's TLS certificate")
    group.add_argument("--ca-file", metavar="FILE", type=path, help="certificate authority of the registry")
    group.add_argument("--authfile", metavar="FILE", type=path, help="credentials file (docker's or Podman's form)")
    group.add_argument("--username", metavar="NAME", help="user at the registry; needs --password-stdin")
    group.add_argument("--password-stdin", action="store_true", help="read the password from standard input")


def add_store_options(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """Where facts are kept between runs."""
    group = parser.add_argument_group("where facts are kept")
    group.add_argument("--store", metavar="DIR", type=path, help="keep them there (default: the user's cache)")
    group.add_argument("--no-store", action="store_true", help="keep nothing and believe nothing kept")
    return group


def add_cache_options(parser: argparse.ArgumentParser) -> None:
    """Where facts are kept between runs, and what else, for commands that read layers."""
    group = add_store_options(parser)
    group.add_argument(
        "--keep-blobs", action="store_true", help="keep the layers fetched from a registry as well, for convert"
    )
    group.add_argument(
        "--store-limit", metavar="SIZE", type=size, help="most bytes that the store may take (default: 4G)"
    )


def add_output_option(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    named = f"{', '.join(formats)}; repeatable" if len(formats) > 1 else formats[0]
    option = parser.add_argument("-o", "--output", metavar="FORMAT[=FILE]", action="append", default=[], help=named)
    setattr(option, VALUES, tuple(formats))


def add_attached_options(parser: argparse.ArgumentParser) -> None:
    """Whether a profile that lies beside the image in its registry is believed."""
    group = parser.add_argument_group("profiles attached to the image by `imgcheck attach`")
    group.add_argument("--trust-attached", action="store_true", help="use one, whoever could push it")
    group.add_argument(
        "--attached-digest", metavar="DIGEST", type=stated, help="use that one alone, whose signature was verified"
    )


def add_rules_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rules", metavar="DIR", type=path, action="append", default=[], help="more or other rules data of this site"
    )


def add_quiet_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress bar")


def source_options(
    arguments: argparse.Namespace, knowledge: "Knowledge", store: "Store | None" = None, read_all: bool = False
) -> "SourceOptions":
    """The SourceOptions that the command line describes; reads the password where it was announced, once.

    Blobs are kept and spilt in `store`; layers whose facts it holds are not going to be read, unless `read_all`.
    """
    from imgcheck.profile.blobs import KeptBlobs
    from imgcheck.sources.options import SourceOptions
    from imgcheck.sources.registries import short_names

    if arguments.password_stdin and not hasattr(arguments, "password"):
        arguments.password = _password()
    if bool(arguments.username) != arguments.password_stdin:
        raise UsageError("--username and --password-stdin go together")
    if arguments.authfile and not arguments.authfile.exists():  # it may be the FIFO of a shell's <(...)
        raise UsageError(f"--authfile {arguments.authfile}: no such file", "name one, or leave the option away")
    return SourceOptions(
        platform=arguments.platform,
        platform_only=getattr(arguments, "platform_asked", bool(arguments.platform)),
        plain_http=arguments.plain_http,
        insecure=arguments.insecure,
        ca_file=arguments.ca_file,
        authfile=arguments.authfile,
        username=arguments.username or "",
        password=getattr(arguments, "password", ""),
        short_names=short_names(knowledge),
        cache=KeptBlobs(store, arguments.keep_blobs) if store else None,
        unread=store.has_layer if store and not read_all else (lambda diff_id: False),
    )


def _password() -> str:
    try:
        return sys.stdin.readline().rstrip("\n").encode().decode()
    except UnicodeError:
        # The exception's own text would show some of it.
        raise UsageError("--password-stdin: what comes is not UTF-8") from None


def refuse_unless_registry(reference: str) -> None:
    """UsageError where `reference` does not lead to a registry: nothing else can be pushed to."""
    from imgcheck.sources.reference import parse

    if parse(reference).kind != "registry":
        raise UsageError(f"{reference}: only an image in a registry can be attached to")


def store(arguments: argparse.Namespace) -> "Store | None":
    """The Store that the command line names, or None with --no-store."""
    from imgcheck.profile.build import engines
    from imgcheck.profile.store import DEFAULT_LIMIT, open_store, store_key

    if arguments.no_store:
        if arguments.store or getattr(arguments, "keep_blobs", False):
            other = "--store" if arguments.store else "--keep-blobs"
            raise UsageError(f"{other} and --no-store exclude each other")
        return None
    limit = getattr(arguments, "store_limit", None)
    return open_store(arguments.store, store_key(engines()), DEFAULT_LIMIT if limit is None else limit)


def add_host_option(parser: argparse.ArgumentParser, help: str) -> None:
    """`--host-probe [HOST.json ...]`, as host_files.split_host_probe takes it apart; `--host` as preflight calls it."""
    parser.add_argument("--host-probe", "--host", metavar="HOST.json", action="append", default=[], help=help)


def add_runtime_option(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument(
        "--runtime", metavar="NAME", action="append", default=[], help="judge under this runtime"
    )
    list_in_help(option, _runtimes)


def list_in_help(option: argparse.Action, names: Callable[[], Iterable[str]]) -> None:
    """Let the help of `option` end in these names, read where help is asked for: that costs a check nothing."""
    setattr(option, _LISTED, names)


def _runtimes() -> Iterable[str]:
    from imgcheck.knowledge import Knowledge

    return Knowledge().runtimes


def add_command(parser: argparse.ArgumentParser) -> None:
    """Say that a command may stand behind `--`, which is taken away before the parser sees it."""
    parser.takes_command = True  # type: ignore[attr-defined]
    parser.add_argument_group(
        "what runs in the container",
        "-- CMD ...   Docker and its like hand it to the image's ENTRYPOINT, `apptainer exec` runs it as it is",
    )


def document(text: str) -> Path:
    """The file for the one document that a command writes, which is no FORMAT as that of reports is."""
    if stated(text).partition("=")[0] in REPORT_FORMATS:
        raise argparse.ArgumentTypeError(f"{text}: a FILE is named here, no format; ./{text} if it is called so")
    return Path(text)


def path(text: str) -> Path:
    """The path that an option names."""
    return Path(stated(text))


def stated(text: str) -> str:
    """The value of an option, which is not empty: an unset shell variable must not mean what leaving it away does."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; leave the option away where nothing is meant")
    return text


def size(text: str) -> int:
    """Bytes that an option names, as in 500M."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)i?B?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: not a number of bytes, such as 500M or 4G")
    return int(match[1]) * _UNITS[match[2]]


def outputs(values: Sequence[str], formats: Sequence[str], baseline: Path | None = None) -> list[Output]:
    """`-o` values parsed; standard output, also as `-`, gets a table where none of them claims it.

    Raises UsageError for an unknown format, where two of them want standard output or the same file, also that of
    --write-baseline (`baseline`), and where a file cannot be written.
    """
    parsed = []
    for value in values:
        name, equals, file = value.partition("=")
        if name not in formats or (equals and not file):
            raise UsageError(
                f"-o {value}: a FORMAT or FORMAT=FILE, where FORMAT is one of {', '.join(formats)}",
                _meant_output(value, formats),
            )
        parsed.append(Output(name, Path(file) if file not in ("", "-") else None))
    _refuse_shared_files(parsed, baseline)
    for output in parsed:
        if output.file is not None:
            refuse_unwritable(f"-o {output.format}={output.file}", output.file)
    to_stdout = sum(output.file is None for output in parsed)
    if to_stdout > 1:
        raise UsageError("only one -o may write to standard output; give the others a file: -o FORMAT=FILE")
    return parsed if parsed and to_stdout else [Output(formats[0], None), *parsed]


def _meant_output(value: str, formats: Sequence[str]) -> str:
    from imgcheck.spelling import misspelt

    name, equals, file = value.partition("=")
    ending = name.rpartition(".")[2]
    if ending in formats and ending != name:
        return f"did you mean -o {ending}={name}?"
    near = misspelt(name, formats, 1)
    if near and equals and not file:
        return f"did you mean -o {near[0]}, or -o {near[0]}=FILE?"
    return f"did you mean -o {near[0]}{equals}{file}?" if near else ""


def emit(output: Output, text: str) -> None:
    """Write `text` where `output` says. What is for programs is UTF-8 whatever the locale; people get what theirs has.

    Raises OSError.
    """
    if output.file is not None:
        write(output.file, text.encode())
        return
    binary = getattr(sys.stdout, "buffer", None)  # none where a caller in the same process takes the text itself
    if output.format == "table" or binary is None:
        sys.stdout.write(text)
    else:
        sys.stdout.flush()
        binary.write(text.encode())


def _refuse_shared_files(outputs: Sequence[Output], baseline: Path | None) -> None:
    writers = {baseline.resolve(): f"--write-baseline {baseline}"} if baseline else {}
    for output in outputs:
        if output.file is None:
            continue
        option = f"-o {output.format}={output.file}"
        earlier = writers.setdefault(output.file.resolve(), option)
        if earlier is not option:
            raise UsageError(f"{earlier} and {option} write to the same file", "give each a file of its own")
