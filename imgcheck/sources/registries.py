"""Where a name in a registry really leads: short names, Docker Hub's naming, registries.conf and its mirrors."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from imgcheck.errors import SourceError
from imgcheck.knowledge.store import Knowledge
from imgcheck.sources.reference import Reference, is_registry_host, parse_name

DEFAULT_VARIABLE = "IMGCHECK_DEFAULT_REGISTRY"
"""Environment variable naming the registry of short names."""
_LOOPBACK = re.compile(r"127(?:\.[0-9]{1,3}){3}")


class ShortNames(msgspec.Struct, frozen=True):
    """The built-in registry of short names (rules/tables/registries.toml)."""

    host: str
    aliases: tuple[str, ...]
    endpoint: str
    namespace: str
    credentials_key: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Endpoint:
    """One place from which an image can be fetched."""

    host: str
    """HOST[:PORT] to connect to."""
    repository: str
    login: tuple[str, ...]
    """Names under which credentials files know this registry, HOST or a key of its own."""
    insecure: bool = False
    """registries.conf allows an unverified certificate or plain HTTP."""
    mirror: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine, for which HTTP without TLS is usual."""
        name = self.host.rpartition(":")[0] if not self.host.endswith("]") and ":" in self.host else self.host
        return name in ("localhost", "[::1]") or bool(_LOOPBACK.fullmatch(name))


class Place(msgspec.Struct, frozen=True, rename="kebab"):
    """A mirror: a `[[registry.mirror]]` table."""

    location: str = ""
    insecure: bool = False
    pull_from_mirror: str = ""


class Registry(Place, frozen=True, rename="kebab"):
    """A `[[registry]]` table."""

    prefix: str = ""
    blocked: bool = False
    mirror: tuple[Place, ...] = ()
    mirror_by_digest_only: bool = False

    @property
    def covers(self) -> str:
        """The beginning of the names that it is about."""
        return self.prefix or self.location


class RegistriesConf(msgspec.Struct, frozen=True, rename="kebab"):
    """The parts of containers-registries.conf(5), version 2, that decide where a pull goes."""

    unqualified_search_registries: tuple[str, ...] = ()
    registry: tuple[Registry, ...] = ()


def endpoints(
    reference: Reference, environment: Mapping[str, str] = os.environ, names: ShortNames | None = None
) -> list[list[Endpoint]]:
    """The registries to ask in turn for `reference`, each as its mirrors followed by itself.

    Short names lead where `names` says, by default as imgcheck ships it.
    More than one only for a short name where registries.conf has several search registries. Raises SourceError
    where registries.conf blocks the name or cannot be read.
    """
    names = names or short_names()
    conf = read_registries_conf(environment)
    hosts = (reference.registry,) if reference.registry else _search(conf, environment, names)
    return [_sources(host, reference, conf, names) for host in hosts]


def short_names(knowledge: Knowledge | None = None) -> ShortNames:
    """Where short names lead: the table of `knowledge`, by default the one that imgcheck ships."""
    return msgspec.convert((knowledge or Knowledge()).table("tables/registries.toml")["short_names"], ShortNames)


def canonical_name(name: str, names: ShortNames) -> str:
    """`name` with registry, namespace and tag written out, so that two ways to write one name are equal.

    What is no name is returned as it is.
    """
    try:
        found = parse_name(name, name)
    except SourceError:
        return name
    host = found.registry or names.host
    repository = _qualified(host, found.repository, names)
    return f"{host}/{repository}" + (f"@{found.digest}" if found.digest else f":{found.tag or 'latest'}")


def read_registries_conf(environment: Mapping[str, str]) -> RegistriesConf:
    """The first registries.conf there is: named by the environment, the user's, the system's."""
    for path in _conf_paths(environment):
        try:
            return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), RegistriesConf)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
            raise SourceError(f"{path}: cannot be read: {error}") from None
    return RegistriesConf()


def _conf_paths(environment: Mapping[str, str]) -> list[Path]:
    if named := environment.get("CONTAINERS_REGISTRIES_CONF"):
        return [Path(named)]
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    return [Path(home, "containers/registries.conf"), Path("/etc/containers/registries.conf")]


def _search(conf: RegistriesConf, environment: Mapping[str, str], names: ShortNames) -> tuple[str, ...]:
    if chosen := environment.get(DEFAULT_VARIABLE):
        if not is_registry_host(chosen):
            raise SourceError(f"{DEFAULT_VARIABLE}={chosen}: not a registry host", hint="give HOST[:PORT]")
        return (chosen,)
    return conf.unqualified_search_registries or (names.host,)


def _sources(host: str, reference: Reference, conf: RegistriesConf, names: ShortNames) -> list[Endpoint]:
    """The mirrors of the registry at `host`, then itself, as registries.conf orders them."""
    if host in names.aliases:
        host = names.host
    name = f"{host}/{_qualified(host, reference.repository, names)}"
    entry = _match(name, conf)
    if entry is None:
        return [_endpoint(name, names, insecure=False)]
    if entry.blocked:
        raise SourceError(f"{name}: blocked by registries.conf")
    rest = name.removeprefix(entry.covers) if not entry.covers.startswith("*") else None
    found = [
        _endpoint(_moved(name, mirror, rest), names, mirror.insecure, mirror=True)
        for mirror in _mirrors(entry, reference)
    ]
    return [*found, _endpoint(_moved(name, entry, rest), names, entry.insecure)]


def _qualified(host: str, repository: str, names: ShortNames) -> str:
    """`repository` as the registry knows it: the default one puts a namespace before a single component."""
    return f"{names.namespace}/{repository}" if host == names.host and "/" not in repository else repository


def _match(name: str, conf: RegistriesConf) -> Registry | None:
    """The entry with the longest prefix of `name` that ends at a component."""
    matching = [entry for entry in conf.registry if _covers(entry.covers, name)]
    return max(matching, key=lambda entry: len(entry.covers), default=None)


def _covers(prefix: str, name: str) -> bool:
    if prefix.startswith("*."):
        return name.partition("/")[0].endswith(prefix[1:])
    return bool(prefix) and (name == prefix or name.startswith((prefix + "/", prefix + ":")))


def _mirrors(entry: Registry, reference: Reference) -> list[Place]:
    """The mirrors that may serve `reference`: some are only for digests, some only for tags."""
    refused = "tag-only" if reference.digest else "digest-only"
    if entry.mirror_by_digest_only and not reference.digest:
        return []
    return [mirror for mirror in entry.mirror if mirror.location and mirror.pull_from_mirror != refused]


def _moved(name: str, place: Place, rest: str | None) -> str:
    """`name` with the matched prefix replaced by the place's location; unchanged where it has none."""
    if not place.location:
        return name
    return f"{place.location}/{name.partition('/')[2]}" if rest is None else f"{place.location}{rest}"


def _endpoint(name: str, names: ShortNames, insecure: bool, mirror: bool = False) -> Endpoint:
    host, _, repository = name.partition("/")
    if not is_registry_host(host):
        raise SourceError(f"{name}: {host!r}, to which registries.conf leads, is not a registry host")
    if host == names.host:
        login = (names.credentials_key, names.host, *names.aliases)
        return Endpoint(names.endpoint, repository, login, insecure, mirror)
    return Endpoint(host, repository, (host,), insecure, mirror)
