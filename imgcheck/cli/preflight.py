"""`imgcheck preflight`: an image held against the node it is about to start on, for prologs of schedulers.

Hundreds of tasks start at once: an answer that is kept is found and printed before anything else is imported.
"""

import os
import sys

from imgcheck.preflight import kept
from imgcheck.preflight.place import private_directory

TYPE_CHECKING = False
"""Of type checkers alone True, as that of `typing`, for which a kept answer has no time."""
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from imgcheck.errors import ImgcheckError, UsageError
    from imgcheck.knowledge.schedulers import Scheduler
    from imgcheck.preflight.run import Task

_EXAMPLES = """
imgcheck preflight app.sif                                       by hand, on a node
imgcheck preflight app.sif --runtime apptainer-nv -- python train.py
imgcheck preflight "$IMGCHECK_IMAGE" --scheduler slurm-task      in a TaskProlog
imgcheck profile app.sif -o app.sif.imgcheck.json                once, so that a preflight takes milliseconds
"""
_TIME_LIMIT = 60.0
_LONGEST = 86400.0
_MARGIN = 5.0
"""Seconds after the time limit for what keeps the limit itself, with a better message."""
_LATE = "not checked: no answer within {:g} s"


def run(arguments: "Sequence[str]") -> int:
    """Answer for one image; the exit status is what the scheduler understands."""
    arguments = list(arguments)
    try:
        directory = private_directory(_value(arguments, "--cache"))
        asked = kept.question(arguments) if directory else ""
    except OSError as error:
        return kept.emit(_in_trouble(arguments, _nowhere(error)))
    answer = kept.find(directory, asked) if directory else None
    return kept.emit(answer or _answer(arguments, directory, asked))


def run_within_limit(arguments: "Sequence[str]", ended: "Callable[[Callable[[], int]], int]") -> int:
    """`run` in a child that is given up where its own limit does not end it, as in a file system that is gone.

    `ended` turns what fails into words and an exit status. Nothing but a child asks a file system.
    """
    from imgcheck.preflight.child import said_within

    own = list(arguments)
    limit = _limit(own)
    try:
        said = said_within(limit + _MARGIN, lambda: ended(lambda: run(own)))
        if said is None:
            said = said_within(_MARGIN, lambda: ended(lambda: kept.emit(_in_trouble(own, _late(limit)))))
    except OSError:  # no process can be had: what hangs holds this one
        return run(own)
    if said is None:  # not even the preset can be read
        going_on = _scheduler(own) not in (None, "none")
        return kept.emit(kept.Answer(0 if going_on else 2, "", f"imgcheck: {_LATE.format(limit)}\n", "", "", ""))
    return said.passed_on()


def _limit(arguments: list[str]) -> float:
    """The seconds of --timeout; those without it also where it is to be complained of."""
    try:
        return max(0.0, min(float(_value(arguments, "--timeout") or _TIME_LIMIT), _LONGEST))
    except ValueError:
        return _TIME_LIMIT


def _late(limit: float) -> "ImgcheckError":
    from imgcheck.errors import ImgcheckError

    return ImgcheckError(_LATE.format(limit), "a file system may be gone")


def _nowhere(error: OSError) -> "UsageError":
    from imgcheck.errors import UsageError

    return UsageError(f"the working directory: {error.strerror or error}", "start in a directory that exists")


def _value(arguments: list[str], option: str) -> str:
    """The value of `option`, of several the last, as the parser has it; "" without one."""
    return ["", *_values(arguments, option)][-1]


def _values(arguments: list[str], option: str) -> list[str]:
    """The values of `option` among the arguments before `--`, "" for one that is missing; the parser has not been
    imported yet.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    found = []
    for index, argument in enumerate(own):
        if argument.startswith(f"{option}="):
            found.append(argument[len(option) + 1 :])
        elif argument == option:
            found.append("".join(own[index + 1 : index + 2]))
    return found


def _answer(arguments: list[str], directory: str, asked: str) -> kept.Answer:
    """The answer worked out. Under a scheduler nothing may end otherwise than its preset says, not even a mistyped
    option: any other exit status drains nodes or closes queues. SystemExit of `--help` alone passes.
    """
    try:
        import gc

        from imgcheck.lean import import_msgspec

        gc.disable()  # a process of so short a life has nothing to collect, and a tenth of it would go into looking
        import_msgspec()
        task, inputs = _task(arguments)
        from imgcheck.preflight.run import answer

        return answer(task, directory, asked, inputs)
    except Exception as error:
        return _in_trouble(arguments, error)


def _in_trouble(arguments: list[str], error: Exception) -> kept.Answer:
    """What the preset of the scheduler says of a check that could not be done; without a scheduler `error` again."""
    name = _scheduler(arguments)
    if name in (None, "none"):
        raise error
    try:
        from imgcheck.knowledge import Knowledge
        from imgcheck.knowledge.schedulers import schedulers
        from imgcheck.preflight.run import unchecked
        from imgcheck.preflight.words import answer_for

        scheduler = schedulers(Knowledge(_sites(arguments)))[name]
        return answer_for(scheduler, *unchecked(scheduler, error))
    except Exception:
        # Not even the preset can be read: every scheduler takes 0 for "go on".
        cause = "; ".join(filter(None, (str(error), getattr(error, "hint", ""))))
        return kept.Answer(0, "", f"imgcheck: not checked: {' '.join(cause.split())}\n", "", "", "")


def _scheduler(arguments: list[str]) -> str | None:
    """The name of the scheduler, "" where it is empty or missing; None where no option asks for one."""
    names = _values(arguments, "--scheduler") or _misspelt_scheduler(arguments)
    return names[-1] if names else None


def _sites(arguments: list[str]) -> "tuple[Path, ...]":
    """The directories of --rules, as the parser has them; none where it refuses more than an unknown option.

    A preset names a file to write, and a prolog of root's passes on what a job names: the value that another option
    lacks, or a name of an image that passes for an option, must not choose the preset.
    """
    from imgcheck.errors import UsageError

    try:
        own, _ = _split_command(arguments)
        return tuple(_parser().parse_known_args(own)[0].rules)
    except UsageError:
        return ()


def _misspelt_scheduler(arguments: list[str]) -> list[str]:
    """What an option close to `--scheduler` names: who mistypes that word shall lose no node either."""
    from imgcheck.spelling import misspelt

    options = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    return next((_values(arguments, option) for option in sorted(options) if misspelt(option, ["--scheduler"])), [])


def _task(arguments: list[str]) -> "tuple[Task, dict[str, str]]":
    """The arguments as a Task, and the files of --rules, which the answer depends on."""
    from imgcheck.errors import UsageError
    from imgcheck.knowledge import Knowledge
    from imgcheck.knowledge.schedulers import schedulers
    from imgcheck.preflight.run import Task

    own, command = _split_command(arguments)
    parsed = _plainly(own) or _carefully(own)
    knowledge = Knowledge(tuple(parsed.rules))
    presets = schedulers(knowledge)
    _among("--scheduler", [parsed.scheduler], presets)
    _among("--runtime", parsed.runtime, knowledge.runtimes)
    if not 0 < parsed.timeout <= _LONGEST:
        raise UsageError(f"--timeout {parsed.timeout:g}: a number of seconds above 0, and at most {_LONGEST:.0f}")
    task = Task(
        reference=parsed.reference,
        scheduler=presets[parsed.scheduler],
        knowledge=knowledge,
        runtimes=tuple(parsed.runtime),
        command=command,
        require_gpu=parsed.require_gpu,
        host=parsed.host or "",
        requeue=parsed.incompatible == "requeue",
        on_missing=parsed.on_missing,
        timeout=parsed.timeout,
        attached=parsed.attached_digest or ("" if parsed.trust_attached else None),
        store="none" if parsed.no_store else parsed.store or "default",
    )
    return task, {path: kept.fingerprint(path) for site in parsed.rules for path in _below(site)}


def _below(directory: str) -> list[str]:
    """`directory`, what lies in it and what lies in its folders, which may be links, by absolute paths: as far as
    Knowledge reads.
    """
    site = os.path.join(os.getcwd(), directory)  # noqa: PTH109, PTH118
    folders = _inside(site)
    return [site, *folders, *(path for folder in folders for path in _inside(folder))]


def _inside(directory: str) -> list[str]:
    try:
        return [f"{directory}/{name}" for name in os.listdir(directory)]  # noqa: PTH208
    except OSError:
        return []


def _plainly(arguments: list[str]) -> "Any":
    """The arguments as the parser would read them, which takes longer to import than most checks take.

    None where they are to be read by it: without an image, for --help, and wherever there is something to complain of.
    """
    found: dict[str, Any] = dict.fromkeys(_FLAGS.values(), False)
    found |= {name: default for name, default, _ in _VALUES.values()}
    found |= {"runtime": [], "rules": [], "reference": None}
    pending = arguments[::-1]
    while pending:
        option, equals, value = pending.pop().partition("=")
        if option in _FLAGS and not equals:
            found[_FLAGS[option]] = True
            continue
        if option in _VALUES:
            value = value if equals else pending.pop() if pending else ""
            if not value or (not equals and value.startswith("-")) or not _set(found, *_VALUES[option], value):
                return None
            continue
        image = option + equals + value
        if not image or image.startswith("-") or found["reference"] is not None:
            return None
        found["reference"] = image
    return type(sys.implementation)(**found) if found["reference"] is not None else None


def _carefully(arguments: list[str]) -> "argparse.Namespace":
    """The arguments as the parser reads them, which complains."""
    from imgcheck.errors import UsageError

    if "" in _values(arguments, "--scheduler"):
        raise UsageError("--scheduler has no value", f"known are {', '.join(_schedulers())}")
    return _parser().parse_args(arguments)


def _set(found: "dict[str, Any]", name: str, default: object, allowed: tuple[str, ...], value: str) -> bool:
    """Set or add to `name`; False for a value that is not one of `allowed`, or no number where there shall be one."""
    if isinstance(found[name], list):
        found[name].append(value)
    elif name == "store":
        from pathlib import Path

        found[name] = Path(value)
    elif isinstance(default, float):
        try:
            found[name] = float(value)
        except ValueError:
            return False
    else:
        found[name] = value
    return not allowed or value in allowed


_FLAGS = {"--require-gpu": "require_gpu", "--trust-attached": "trust_attached", "--no-store": "no_store"}
_MEANINGS, _MISSING = ("cancel", "requeue"), ("analyse", "pass", "fail")
_VALUES: "dict[str, tuple[str, str | float | None, tuple[str, ...]]]" = {
    "--runtime": ("runtime", None, ()),
    "--rules": ("rules", None, ()),
    "--scheduler": ("scheduler", "none", ()),
    "--incompatible": ("incompatible", "cancel", _MEANINGS),
    "--on-missing": ("on_missing", "analyse", _MISSING),
    "--timeout": ("timeout", _TIME_LIMIT, ()),
    "--host": ("host", None, ()),
    "--host-probe": ("host", None, ()),
    "--cache": ("cache", None, ()),
    "--attached-digest": ("attached_digest", None, ()),
    "--store": ("store", None, ()),
}
"""Options to attribute, default and allowed values, as `_parser` has them."""


def _among(option: str, names: "Iterable[str]", known: "Mapping[str, object]") -> None:
    from imgcheck.errors import UsageError

    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}: unknown", f"known are {', '.join(known)}")


def _split_command(arguments: list[str]) -> tuple[list[str], tuple[str, ...] | None]:
    from imgcheck.documents.codec import as_text
    from imgcheck.errors import UsageError

    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    command = tuple(map(as_text, arguments[at + 1 :]))
    if not command:
        raise UsageError("nothing follows `--`", "put the command that will run in the container there")
    return arguments[:at], command


def _schedulers() -> "Mapping[str, Scheduler]":
    from imgcheck.knowledge import Knowledge
    from imgcheck.knowledge.schedulers import schedulers

    return schedulers(Knowledge())


def _parser() -> "argparse.ArgumentParser":
    from imgcheck.cli import options

    parser = options.parser(
        "preflight",
        "Says on a node, before a job starts there, whether its image will work; made for the prologs of schedulers. "
        "The profile is read from beside the image (IMAGE.imgcheck.json), or made within a time limit.",
        _EXAMPLES,
    )
    parser.add_argument("reference", metavar="IMAGE|PROFILE", help="a local image, or its profile")
    options.add_runtime_option(parser)
    scheduler = parser.add_argument(
        "--scheduler", metavar="NAME", default="none", help="exit status and output as it expects them"
    )
    options.list_in_help(scheduler, _schedulers)
    parser.add_argument(
        "--incompatible", choices=_MEANINGS, default="cancel", help="what an image that does not fit means"
    )
    parser.add_argument("--on-missing", choices=_MISSING, default="analyse", help="where there is no profile")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=_TIME_LIMIT, help="for everything; 60")
    parser.add_argument(
        "--host",
        "--host-probe",
        metavar="HOST.json",
        type=options.stated,
        help="hold it against this host instead of this node",
    )
    parser.add_argument("--require-gpu", action="store_true", help="no usable GPU is a failure")
    parser.add_argument(
        "--cache",
        metavar="DIR",
        type=options.stated,
        help="keep probes and answers there (default: a private directory)",
    )
    options.add_attached_options(parser)
    options.add_store_options(parser)
    options.add_rules_option(parser)
    options.add_command(parser)
    return parser
