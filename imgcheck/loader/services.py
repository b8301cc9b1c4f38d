"""Configurations that name programs (supervisord's, units of systemd, crontabs, Procfiles, s6-rc) -> what they start.

Words come as templates, as shell_words.py has them. Who reads which of these files stands in supervisors.py.
"""

import configparser
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from imgcheck.documents.image import Service, Services
from imgcheck.loader.execline import read_execline
from imgcheck.loader.shell_words import UNKNOWN

HERE = "here/"
"""What templates call the directory of the file; no variable is called so."""
_HERE = f"${{{HERE}}}"
_MOST = 128
"""Services of one file."""
_LONGEST = 4096
"""Characters of a word."""
_SUPERVISOR_SECTION = re.compile(r"(?:program|fcgi-program|eventlistener):\s*(.+)")
_EXPANSION = re.compile(r"%%|%\((\w+)\)(\d{0,2}[sd])")
_SETTING = re.compile(r"""([A-Za-z_]\w*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^,\s]*))""")
_YES = frozenset({"1", "on", "t", "true", "y", "yes"})
_UNIT_PREFIXES = "@-:+!|"
"""Before the path of a program (systemd.service(5), "Command lines")."""
_UNIT_VARIABLE = re.compile(r"\$\$|\$\{(\w+)\}|\$(\w+)|%%|%\w")
_PROCESS = re.compile(r"([\w-]+):\s*(.+)")
_TIMES = re.compile(r"(?:@\w+|(?:\S+[ \t]+){4}\S+)[ \t]+(.+)")
_VARIABLE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*)")
_SECTION = re.compile(r"^\[(?:program|fcgi-program|eventlistener|include|supervisord)\b", re.MULTILINE)
_Read = tuple[list[Service], list[str]]
"""Services, and patterns of what is included."""


def may_hold_services(path: str) -> bool:
    """Whether the file at `path` may be one of these."""
    return _PLACES.search(path) is not None


def read_services(path: str, data: bytes) -> Services | None:
    """What the file at `path` starts; None where it is none of these files, or cannot be read.

    The path stays empty: only the finished tree tells it.
    """
    found = _PLACES.search(path)
    if found is None or found.lastindex is None:
        return None
    read = _READERS[found.lastindex - 1][1]
    try:
        text = data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
        services, includes = read(text)
    except (ValueError, configparser.Error):
        return None
    return Services("", _kept(services), tuple(includes)) if services or includes else None


def _supervisord(text: str) -> _Read:
    """`[program:NAME]` and `[include]` (supervisord.org/configuration.html), read as supervisord reads them."""
    if not _SECTION.search(text):
        return [], []
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)
    parser.read_string(text)
    programs = {name: match for name in parser.sections() if (match := _SUPERVISOR_SECTION.fullmatch(name))}
    patterns = parser.get("include", "files", fallback="").split()
    includes = [each if each.startswith(("/", "${")) else f"{_HERE}/{each}" for each in map(_expanded, patterns)]
    whole = dict(parser["supervisord"]) if parser.has_section("supervisord") else {}
    found = []
    for section, match in programs.items():
        values, known = dict(parser[section]), {"program_name": match[1], "group_name": match[1]}
        if values.get("numprocs", "1") == "1":
            known["process_num"] = values.get("numprocs_start", "0")
        words = shlex.split(values.get("command", ""))
        settings = (*_settings(whole.get("environment", "")), *_settings(values.get("environment", "")))
        found.append(
            Service(
                tuple(_expanded(word, known) for word in words),
                _expanded(values.get("directory", whole.get("directory", "")), known),
                tuple(f"{name}={_expanded(value, known)}" for name, value in settings),
                certain=values.get("autostart", "true").lower() in _YES,
            )
        )
    return found, includes


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """`A="1",B=2`."""
    for match in _SETTING.finditer(text):
        yield match[1], next((value for value in match.groups()[1:] if value is not None), "")


def _expanded(text: str, known: Mapping[str, str] = MappingProxyType({})) -> str:
    """A word with supervisord's `%(NAME)s` as a template."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or ""
        if match[0] == "%%":
            return "%"
        if name.startswith("ENV_"):
            return f"${{{name.removeprefix('ENV_')}}}"
        if name not in known:
            return _HERE if name == "here" else UNKNOWN
        return _literal(f"%{match[2]}" % (int(known[name]) if match[2][-1] == "d" else known[name]))

    return _substituted(_EXPANSION, value, text)


def _substituted(pattern: re.Pattern[str], value: Callable[[re.Match[str]], str], text: str) -> str:
    """A template that has `value` in place of what `pattern` finds, and all else as it stands."""
    found, at = "", 0
    for match in pattern.finditer(text):
        found += _literal(text[at : match.start()]) + value(match)
        at = match.end()
    return found + _literal(text[at:])


def _unit(text: str) -> _Read:
    """`ExecStart=` of a unit of systemd, with what runs before and behind it."""
    section, words, environment, directory = "", [], [], ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("["):
            section = line.strip()
        name, _, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if section != "[Service]" or line.startswith(("#", ";")):
            continue
        if name in ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecCondition"):
            words += [command for command in _split(shlex.split(value)) if command]
        elif name == "Environment":
            environment += [word for word in shlex.split(value) if _VARIABLE.fullmatch(word)]
        elif name == "WorkingDirectory":
            directory = value.lstrip("-")
    settings = tuple(_of_unit(word) for word in environment)
    found = [Service(tuple(map(_of_unit, each)), _of_unit(directory), settings, certain=False) for each in words]
    return found, []


def _split(words: list[str]) -> Iterator[list[str]]:
    """The commands of one line, each without the signs before its program."""
    command: list[str] = []
    for word in [*words, ";"]:
        if word == ";":
            yield command
            command = []
        else:
            command.append(word if command else word.lstrip(_UNIT_PREFIXES))


def _of_unit(word: str) -> str:
    """A word with `$NAME`, and specifiers, as a template."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return f"${{{name}}}" if name else {"$$": "$$", "%%": "%"}.get(match[0], UNKNOWN)

    return _substituted(_UNIT_VARIABLE, value, word)


def _procfile(text: str) -> _Read:
    """`NAME: LINE OF A SHELL`."""
    lines = [match[2] for line in text.splitlines() if (match := _PROCESS.fullmatch(line.strip()))]
    return [Service(_line(line), _HERE) for line in lines], []


def _system_crontab(text: str) -> _Read:
    return _crontab(text, with_user=True)


def _crontab(text: str, with_user: bool = False) -> _Read:
    """crontab(5): variables, and times with a command of a shell, before it in the system's own tables a user."""
    environment: list[str] = []
    found = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#"):
            continue
        if variable := _VARIABLE.fullmatch(line):
            environment.append(f"{variable[1]}={_literal(variable[2].strip(chr(34) + chr(39)))}")
        elif match := _TIMES.fullmatch(line):
            command = match[1].split(None, 1)[-1] if with_user else match[1]
            # What follows the first percent sign is standard input.
            words = _line(re.split(r"(?<!\\)%", command)[0].replace("\\%", "%"))
            found.append(Service(words, environment=tuple(environment), certain=False))
    return found, []


def _line(text: str) -> tuple[str, ...]:
    return "/bin/sh", "-c", _literal(text)


def _execline(text: str) -> _Read:
    """`up` of a one-shot service of s6-rc: a text of execline without a first line."""
    return [Service(command.words, certain=not command.conditional) for command in read_execline(text)], []


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _kept(services: Iterable[Service]) -> tuple[Service, ...]:
    fit = (each for each in services if each.words and max(map(len, (*each.words, *each.environment))) <= _LONGEST)
    return tuple(fit)[:_MOST]


_READERS: tuple[tuple[tuple[str, ...], Callable[[str], _Read]], ...] = (
    (("etc/crontab", "cron.d/*"), _system_crontab),
    (("crontabs/*", "spool/cron/*"), _crontab),
    (("s6-rc.d/*/up",), _execline),
    (("Procfile",), _procfile),
    (("systemd/system/*.service",), _unit),
    (("*.conf", "*.ini", "supervisord.d/*"), _supervisord),
)
"""By the last names of a path, as globs whose `*` is within one name; the first that fits counts."""
PATHS = tuple(glob for globs, _ in _READERS for glob in globs)


def _places(globs: Iterable[str]) -> str:
    return "|".join(re.escape(glob).replace(r"\*", "[^/]*") for glob in globs)


_PLACES = re.compile("(?:^|/)(?:" + "|".join(f"({_places(globs)})" for globs, _ in _READERS) + ")$")
