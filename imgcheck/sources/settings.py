"""Environment, command and architecture of an unpacked root, from what the runtime that made it keeps beside it."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from imgcheck.binaries.elf import Elf
from imgcheck.documents.image import ImageConfig, Platform
from imgcheck.errors import ElfError, SourceError
from imgcheck.sources.blobs import parse_json, parse_platform, read_limited
from imgcheck.sources.config import image_config
from imgcheck.sources.layout import DirectoryFiles, Files
from imgcheck.sources.platforms import goarch

_LIMIT = 1 << 20
"""Bytes of any of these files, and of all variables that they set: `A="$A$A"` doubles one with each line."""
_LONGEST_STATEMENT = 1 << 17
"""Characters (MAX_ARG_STRLEN, execve(2)); shlex takes a time that grows with the square of a word."""
# Programs that nearly every root has, in both places they have lain; one that is a link is passed over.
_PROGRAMS = tuple(
    f"{directory}/{name}"
    for directory in ("usr/bin", "bin")
    for name in ("bash", "dash", "env", "ls", "busybox", "cat", "tar")
)
_SINGULARITY_ENVIRONMENT = ("10-docker2singularity.sh", "10-docker.sh", "90-environment.sh")
_SHELL_DEFAULT = re.compile(r'(\w+)="\$\{\1:-"?(.*?)"?\}"', re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_ESCAPED = re.compile(r'\\([\\"$`])')
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ENROOT_QUOTED = re.compile(r"^[\"'](.*)[\"']\s*$")
ENROOT_EMPTY = "${IMGCHECK_EMPTY}"
"""A variable that no host has: `convert` writes it where enroot would else replace what looks like a reference."""
_RUNSCRIPT = "/.singularity.d/runscript"


@dataclass(frozen=True)
class Settings:
    """What is known of a root besides its files."""

    config: ImageConfig = field(default_factory=ImageConfig)
    platform: Platform | None = None
    notes: tuple[str, ...] = ()
    family: str = ""
    """The runtimes that it was made for (knowledge.types.Runtime.family); "" where nothing tells."""


def read_settings(root: Path) -> Settings:
    """The settings of `root`: udocker's container.json beside it, else Singularity's or Charliecloud's files in it.

    Links inside the root are not followed. A file that cannot be understood is a note.
    """
    files = DirectoryFiles(str(root))
    return _settings(files, (lambda: _udocker(root), lambda: _singularity(files), lambda: _charliecloud(files)))


def read_settings_of(files: Files, platform: Platform | None) -> Settings:
    """The same of a root that is no directory; `platform` is what its file says of it, None where it says nothing."""
    readers = (lambda: _singularity(files), lambda: _charliecloud(files), lambda: _enroot(files))
    return _settings(files, readers, platform)


def with_config(settings: Settings, config: ImageConfig) -> Settings:
    """`settings` of a root that was made of an image with `config`.

    What the image said holds, save for what was written into the root afterwards: a runscript of its own, and
    variables that the image does not set.
    """
    own = settings.config
    named = {line.partition("=")[0] for line in config.environment}
    added = tuple(line for line in own.environment if line.partition("=")[0] not in named)
    config = structs.replace(config, environment=(*config.environment, *added))
    if own.entrypoint == (_RUNSCRIPT,) or not (config.entrypoint or config.command):
        config = structs.replace(config, entrypoint=own.entrypoint, command=own.command)
    return replace(settings, config=config)


def _settings(
    files: Files, readers: tuple[Callable[[], Settings | None], ...], platform: Platform | None = None
) -> Settings:
    found = Settings()
    for reader in readers:
        try:
            settings = reader()
        except SourceError as error:
            found = replace(found, notes=(*found.notes, error.message))
            continue
        if settings is not None:
            found = replace(settings, notes=found.notes)
            break
    platform = platform or found.platform or _platform_of_programs(files)
    found = replace(found, platform=platform)
    if platform is None:
        found = replace(found, notes=(*found.notes, "no program tells the architecture; this machine's is assumed"))
    return found


def _udocker(root: Path) -> Settings | None:
    """container.json is the image's config (udocker 1.3, container/structure.py)."""
    data = _read(DirectoryFiles(str(root.parent)), "container.json") if root.name == "ROOT" else None
    return None if data is None else replace(_from_config(data, f"{root.parent}/container.json"), family="udocker")


def _charliecloud(files: Files) -> Settings | None:
    """`ch/metadata.json` of ch-image or a plain OCI config, and `ch/environment` of ch-run --set-env."""
    metadata, environment = _read(files, "ch/metadata.json"), _read(files, "ch/environment")
    if metadata is None and environment is None:
        return None
    settings = Settings() if metadata is None else _from_config(metadata, f"{files.place}/ch/metadata.json")
    settings = replace(settings, family="charliecloud")
    if environment is None:
        return settings
    variables = tuple(f"{name}={_unquoted(value)}" for name, value in _assignments(environment))
    return replace(settings, config=structs.replace(settings.config, environment=variables))


def _enroot(files: Files) -> Settings | None:
    """`/etc/environment`, which holds the image's ENV line by line (enroot, doc/image-format.md)."""
    if _read(files, "etc/rc") is None:
        return None
    lines = _assignments(_read(files, "etc/environment") or b"")
    return Settings(ImageConfig(environment=tuple(f"{name}={_enroot_value(value)}" for name, value in lines)))


def _enroot_value(value: str) -> str:
    """Enroot (src/common.sh) takes quotes round a value away, before its hooks and after them."""
    for _ in range(2):
        value = _ENROOT_QUOTED.sub(r"\1", value)
    return value.replace(ENROOT_EMPTY, "")


def _assignments(data: bytes) -> Iterator[tuple[str, str]]:
    for line in _text(data).split("\n"):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield name, value


def _from_config(data: bytes, what: str) -> Settings:
    document = parse_json(data, what)
    if "config" in document or "container_config" in document:
        config = image_config(document.get("config") or document.get("container_config"), what)
        return Settings(config, parse_platform(document))
    # ch-image's own form: `env` is an object, `cwd` and `arch` are strings.
    raw = document.get("env")
    variables = tuple(f"{key}={value}" for key, value in raw.items()) if isinstance(raw, dict) else ()
    directory, architecture = document.get("cwd"), document.get("arch")
    return Settings(
        ImageConfig(environment=variables, working_directory=directory if isinstance(directory, str) else ""),
        Platform("linux", goarch(architecture)) if isinstance(architecture, str) and architecture else None,
    )


def _singularity(files: Files) -> Settings | None:
    """The scripts that Singularity and Apptainer write for an image, as far as they are plain."""
    runscript = _read(files, ".singularity.d/runscript")
    scripts = [_read(files, f".singularity.d/env/{name}") for name in _SINGULARITY_ENVIRONMENT]
    if runscript is None and not any(scripts):
        return None
    variables: dict[str, str] = {}
    for script in scripts:
        _collect(_text(script or b""), variables, files.place)
    entrypoint, command = _command(_text(runscript or b""))
    environment = tuple(f"{name}={value}" for name, value in variables.items())
    config = ImageConfig(entrypoint=entrypoint, command=command, environment=environment)
    return Settings(config, family="apptainer")


def _collect(script: str, variables: dict[str, str], place: str) -> None:
    """Add the variables that `script` exports with values it writes out, in order."""
    left = _LIMIT - sum(map(len, variables.values()))
    for line in _statements(script):
        statement = line.strip().removeprefix("export ").partition("; export")[0].strip()
        name, equals, value = statement.partition("=")
        if not equals or not _NAME.fullmatch(name):
            continue
        pieces = _value(statement, value, variables)
        left -= sum(map(len, pieces))
        if left < 0:
            raise SourceError(f"{place}/.singularity.d/env: its variables hold more than {_LIMIT >> 20} MiB")
        if pieces:
            variables[name] = "".join(pieces)


def _value(statement: str, value: str, variables: dict[str, str]) -> list[str]:
    """What the assignment `statement` gives its variable, in pieces not yet joined; none where it is not plain."""
    if match := _SHELL_DEFAULT.fullmatch(statement):
        return [_ESCAPED.sub(r"\1", match[2])]
    words = _split(statement)
    if len(words) != 1:
        return []
    plain = words[0].partition("=")[2]
    return [plain] if value.startswith("'") else _expanded(plain, variables)


def _statements(script: str) -> list[str]:
    """Lines, joined where a quotation runs over several."""
    found: list[str] = []
    lines: list[str] = []
    quote = ""
    for line in script.splitlines():
        lines.append(line)
        quote = "" if len(lines) == 1 and line.lstrip().startswith("#") else _open_behind(line, quote)
        if not quote:
            found.append("\n".join(lines))
            lines.clear()
    return found


def _open_behind(line: str, quote: str) -> str:
    """The quotation, or the backslash, that is open behind `line`, `quote` being what was open before it."""
    escaped = False
    quote = quote.removeprefix("\\")
    for letter in line:
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif letter == quote:
            quote = ""
        elif letter in "'\"" and not quote:
            quote = letter
    return quote or ("\\" if escaped else "")


def _command(script: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Entrypoint and command of a runscript: those of the image it was made of, else the script itself."""
    assigned = dict(re.findall(r"^(OCI_ENTRYPOINT|OCI_CMD)=(.*)$", script, re.MULTILINE))
    if assigned:
        return tuple(_inner(assigned.get("OCI_ENTRYPOINT", ""))), tuple(_inner(assigned.get("OCI_CMD", "")))
    lines = [line.strip() for line in _statements(script) if line.strip() and not line.lstrip().startswith("#")]
    if settled := _settled(lines):
        return settled
    if len(lines) == 1 and lines[0].startswith("exec "):
        words = [word for word in _split(lines[0])[1:] if word not in ("$@", "$*")]
        return (), tuple(words)
    return ((_RUNSCRIPT,), ()) if lines else ((), ())


def _settled(lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Entrypoint and command where the script sets its arguments to them and execs those, as imgcheck writes it."""
    if lines[-1:] != ['exec "$@"']:
        return None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    for line in lines:
        if line.startswith("set -- "):
            words = tuple(_split(line)[2:])
            if words[-1:] == ("$@",):
                entrypoint = words[:-1]
            else:
                command = words
    return (entrypoint, command) if entrypoint or command else None


def _inner(value: str) -> list[str]:
    """The words in a quoted list of quoted words, as Singularity writes OCI_CMD."""
    return _split("".join(_split(value)))


def _split(text: str) -> list[str]:
    """The words of a statement; none where it is no plain one, or longer than any argument of a program may be."""
    if len(text) > _LONGEST_STATEMENT:
        return []
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _expanded(value: str, variables: dict[str, str]) -> list[str]:
    """`value` in pieces: its own text and the values of the variables that it names."""
    pieces, at = [], 0
    for match in _VARIABLE.finditer(value):
        pieces += [value[at : match.start()], variables.get(match[1] or match[2], "")]
        at = match.end()
    return [*pieces, value[at:]]


def _unquoted(value: str) -> str:
    """One layer of single quotes stripped, as ch-run does."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == "'" else value


def _platform_of_programs(files: Files) -> Platform | None:
    for program in _PROGRAMS:
        try:
            with files.open(program) as file:
                return Platform("linux", goarch(Elf(file.read(64)).machine))
        except (OSError, ElfError):
            continue
    return None


def _read(files: Files, path: str) -> bytes | None:
    """A small file of `files`; None where there is none."""
    try:
        return read_limited(files.open(path), _LIMIT, f"{files.place}/{path}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceError(f"{files.place}/{path}: {error.strerror or error}") from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
