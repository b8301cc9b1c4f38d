"""The command line: finds the command, runs it, and turns every failure into one line and an exit status.

Exit status: 0 nothing at or above `--fail-on`; 1 something was; 2 the tool could not do its work; 3 the verdict is
`unknown` and `--fail-on` does not cover it.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence

from imgcheck.errors import ImgcheckError
from imgcheck.streams import lead_nowhere, put

OK, FOUND, TROUBLE, UNDECIDED = 0, 1, 2, 3
_LONGEST = 2000
"""Letters of a message or a hint."""
_COLLECT_AFTER = 100_000
"""Objects made beyond those dropped before Python looks for cycles among them, of which a command leaves few."""

COMMANDS: dict[str, str] = {
    "image": "check an image against this host, described hosts, or show what it needs",
    "binary": "show what single ELF files need",
    "probe": "show or keep what this host offers, or describe another",
    "hosts": "group the profiles of a cluster's nodes into kinds",
    "profile": "write what an image needs as a document",
    "preflight": "check a job's image on the node it is about to start on",
    "convert": "turn an image into a tree or file that Apptainer, udocker and others run",
    "attach": "keep an image's profile beside it in its registry",
    "store": "list, shrink or verify the facts that are kept between runs",
    "label": "print what an image needs as labels for its configuration",
    "rules": "list the rules",
    "explain": "explain one rule, with its sources",
    "completion": "print the completion script of a shell",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status and never raises."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _mend_streams()
        _spare_collections()
        if arguments[:1] == ["preflight"]:
            from imgcheck.cli.preflight import run_within_limit

            status = _ended(lambda: run_within_limit(arguments[1:], _ended))
            os._exit(status)  # at the end Python goes through all objects, and what a child shares would be copied
    return _ended(lambda: _dispatch(arguments))


def _ended(work: Callable[[], int]) -> int:
    """Do `work`; the exit status that it returns, or that says how it failed."""
    try:
        status = work()
        sys.stdout.flush()
        return status
    except SystemExit as leave:  # argparse: --help
        return leave.code if isinstance(leave.code, int) else TROUBLE
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error)


def _failed(error: BaseException) -> int:
    """Say why the command came to nothing; its exit status."""
    if _is_interrupt(error):
        return _say("interrupted", status=130)
    if isinstance(error, ImgcheckError):
        return _say(error.message, error.hint)
    if isinstance(error, BrokenPipeError):
        # The reader went away (`| head`): a second flush at exit must not complain, and 0 would say "compatible".
        lead_nowhere(sys.stdout)
        return 141  # 128 and SIGPIPE, as shells say of any other program
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}")
    if isinstance(error, MemoryError):
        return _say("out of memory", "give the process more memory, or check the image on a larger machine")
    # A defect of ours must not look like a verdict: Python's own exit status here would be 1, "incompatible".
    if os.environ.get("IMGCHECK_DEBUG"):
        raise error
    return _say(
        f"internal error: {type(error).__name__}: {error}",
        "this is a defect of imgcheck; IMGCHECK_DEBUG=1 shows where, please report it",
    )


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether `error` is Ctrl-C, or came of it: what is interrupted may fail in its own way while it is left."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def nearest(word: str, known: Iterable[str]) -> str:
    """The beginning of a hint: what of `known` may have been meant by `word`; empty where nothing is near."""
    import difflib

    found = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {found[0]}? " if found else ""


def note(text: str) -> None:
    """Tell the user something besides the result, on stderr; where that cannot be written it is left out."""
    from imgcheck.report.text import safe

    put(sys.stderr, f"imgcheck: note: {safe(text)}\n")


def _mend_streams() -> None:
    """Streams that the caller closed lead nowhere, and a sign that a locale lacks is spelt out: no verdict is lost."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _spare_collections() -> None:
    """Keep Python from going through all facts of an image again and again, and twice more when it ends.

    Both together take a tenth of the time in which kept facts are checked.
    """
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)


def _dispatch(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        print(_overview())
        return OK
    if name in ("-V", "--version", "version"):
        from imgcheck import __version__

        print(f"imgcheck {__version__}")
        return OK
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        known = f"commands are {', '.join(COMMANDS)}; see imgcheck --help"
        return _say(f"unknown {what} {name!r}", nearest(name, COMMANDS) + known)
    module = f"imgcheck.cli.{name}"
    __import__(module)  # which a preflight has at hand, unlike importlib
    return sys.modules[module].run(arguments[1:])


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:<{width}}{what}" for name, what in COMMANDS.items())
    return f"""\
usage: imgcheck COMMAND ...

Tells before a job runs whether a container image will work on a machine. Reads the binaries in the image's layers,
compares what they need with what the host has, and names the error that would come. Runs nothing from the image.

commands:
{commands}

examples:
  imgcheck image qnib/cv-nccl92-tf-dev --host-probe        will it work on this machine?
  imgcheck image app.tar --host-probe node1.json node2.json
  imgcheck probe -o node1.json                             keep what this machine offers
  imgcheck probe --cpu haswell --gpu "Tesla K80" --driver 396.44 -o k80.json
  imgcheck convert oci:build:latest --to sandbox ./app

exit status: 0 fine, 1 a failure is predicted, 2 the tool could not do its work, 3 undecided
`imgcheck COMMAND --help` tells more."""


def _say(message: str, hint: str = "", status: int = TROUBLE) -> int:
    from imgcheck.report.text import safe

    # The bar of a terminal may stand on this line.
    put(sys.stderr, f"imgcheck: {_clipped(safe(message))}\n" + (f"  {_clipped(safe(hint))}\n" if hint else ""))
    return status


def _clipped(text: str) -> str:
    """`text` short enough to be read: messages quote names of images, which may be megabytes of anything."""
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
