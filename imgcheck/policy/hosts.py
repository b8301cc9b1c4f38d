"""The hosts that a policy requires, as profiles."""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from imgcheck.documents import HostProfile, decode
from imgcheck.documents.codec import read_whole
from imgcheck.errors import ImgcheckError, PolicyError
from imgcheck.host.describe import describe_host
from imgcheck.host.kinds import kinds
from imgcheck.knowledge import Knowledge
from imgcheck.policy.document import Policy, RequiredHost

_DESCRIBING = ("arch", "cpu", "driver", "cuda", "glibc", "kernel")


@dataclass(frozen=True)
class Required:
    """A kind of host, and the runtimes under each of which the image must work there (empty: the best of all)."""

    host: HostProfile
    runtimes: tuple[str, ...]


def required_hosts(policy: Policy, path: Path, knowledge: Knowledge) -> list[Required]:
    """The kinds of hosts of every `[[host]]`, their names all different.

    `path` is the policy's file, which relative paths start from. Raises PolicyError.
    """
    result: list[Required] = []
    for number, entry in enumerate(policy.host, 1):
        where = f"{path}: host {number}{f' ({entry.name})' if entry.name else ''}"
        runtimes = entry.runtimes or policy.runtimes
        result += [Required(host, runtimes) for host in _profiles(entry, where, path.parent, knowledge)]
    names = [each.host.name for each in result]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PolicyError(f"{path}: two hosts are called {twice!r}", "give each [[host]] a name of its own")
    return result


def _profiles(entry: RequiredHost, where: str, directory: Path, knowledge: Knowledge) -> list[HostProfile]:
    described = {key: value for key in _DESCRIBING if (value := getattr(entry, key))}
    if entry.profile and (described or entry.gpus):
        raise PolicyError(f"{where}: profile stands beside {', '.join([*described, *(['gpus'] * bool(entry.gpus))])}",
                          "a host is either read from files or described")  # fmt: skip
    if entry.profile:
        return _named(kinds(list(_read(entry.profile, where, directory))), entry.name)
    if not described and not entry.gpus:
        raise PolicyError(f"{where}: nothing says what it is", 'add profile = "HOST.json", or cpu, gpus, driver, ...')
    try:
        return [describe_host(knowledge, gpus=entry.gpus, name=entry.name, **described)]
    except ImgcheckError as error:
        # The option's name is the key's, but for its dashes and the plural of a list.
        raise PolicyError(f"{where}: {_as_key(error.message)}", _as_key(error.hint)) from None


def _as_key(text: str) -> str:
    return text.replace("--gpu", "gpus").replace("--", "")


def _named(found: Sequence[HostProfile], name: str) -> list[HostProfile]:
    if not name:
        return list(found)
    if len(found) == 1:
        return [msgspec.structs.replace(found[0], name=name)]
    return [msgspec.structs.replace(each, name=f"{name}: {each.name}") for each in found]


def _read(pattern: str, where: str, directory: Path) -> Iterator[HostProfile]:
    # Path.glob takes no absolute pattern.
    paths = sorted(glob.glob(pattern, root_dir=directory, recursive=True))  # noqa: PTH207
    if not paths:
        raise PolicyError(f"{where}: no file {pattern} in {directory}", "imgcheck probe -o HOST.json makes one")
    for path in paths:
        try:
            data = read_whole(directory / path)
        except OSError as error:
            raise PolicyError(f"{where}: {directory / path}: {error.strerror}", "name a readable host file") from None
        yield decode(data, HostProfile, str(directory / path))
