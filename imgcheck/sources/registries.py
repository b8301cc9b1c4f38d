"""Where a name in a registry really leads: short names, Docker Hub's naming, registries.conf and its mirrors."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from imgcheck.errors import SourceError
from imgcheck.knowledge.store import Knowledge
from imgcheck.sources.reference import Reference, is_registry_host, parse_name

DEFAULT_VARIABLE = "IMGCHECK_DEFAULT_REGISTRY"
"""Environment variable naming the registry of short names."""


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
        return name in ("localhost", "[::1]") or name.startswith("127.")


@dataclass(frozen=True)
class RegistriesConf:
    """The parts of containers-registries.conf(5), version 2, that decide where a pull goes."""

    search: tuple[str, ...] = ()
    registries: tuple[Mapping[str, Any], ...] = field(default=())


def endpoints(reference: Reference, environment: Mapping[str, str] = os.environ) -> list[list[Endpoint]]:
    """The registries to ask in turn for `reference`, each as its mirrors followed by itself.

    More than one only for a short name where registries.conf has several search registries. Raises SourceError
    where registries.conf blocks the name or cannot be read.
    """
    conf = read_registries_conf(environment)
    hosts = (reference.registry,) if reference.registry else _search(conf, environment)
    return [_sources(host, reference, conf) for host in hosts]


@cache
def short_names() -> ShortNames:
    return msgspec.convert(Knowledge().table("tables/registries.toml")["short_names"], ShortNames)


def canonical_name(name: str) -> str:
    """`name` with registry, namespace and tag written out, so that two ways to write one name are equal.

    What is no name is returned as it is.
    """
    try:
        found = parse_name(name, name)
    except SourceError:
        return name
    host = found.registry or short_names().host
    repository = _qualified(host, found.repository)
    return f"{host}/{repository}" + (f"@{found.digest}" if found.digest else f":{found.tag or 'latest'}")


def read_registries_conf(environment: Mapping[str, str]) -> RegistriesConf:
    """The first registries.conf there is: named by the environment, the user's, the system's."""
    for path in _conf_paths(environment):
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SourceError(f"{path}: cannot be read: {error}") from None
        search, registries = document.get("unqualified-search-registries", []), document.get("registry", [])
        return RegistriesConf(
            tuple(host for host in search if isinstance(host, str)),
            tuple(entry for entry in registries if isinstance(entry, dict)),
        )
    return RegistriesConf()


def _conf_paths(environment: Mapping[str, str]) -> list[Path]:
    if named := environment.get("CONTAINERS_REGISTRIES_CONF"):
        return [Path(named)]
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    return [Path(home, "containers/registries.conf"), Path("/etc/containers/registries.conf")]


def _search(conf: RegistriesConf, environment: Mapping[str, str]) -> tuple[str, ...]:
    if chosen := environment.get(DEFAULT_VARIABLE):
        if not is_registry_host(chosen):
            raise SourceError(f"{DEFAULT_VARIABLE}={chosen}: not a registry host", hint="give HOST[:PORT]")
        return (chosen,)
    return conf.search or (short_names().host,)


def _sources(host: str, reference: Reference, conf: RegistriesConf) -> list[Endpoint]:
    """The mirrors of the registry at `host`, then itself, as registries.conf orders them."""
    defaults = short_names()
    if host in defaults.aliases:
        host = defaults.host
    name = f"{host}/{_qualified(host, reference.repository)}"
    entry = _match(name, conf)
    if entry is None:
        return [_endpoint(name, insecure=False)]
    if entry.get("blocked") is True:
        raise SourceError(f"{name}: blocked by registries.conf")
    rest = name.removeprefix(_prefix(entry)) if not _prefix(entry).startswith("*") else None
    found = [
        _endpoint(_moved(name, mirror, rest), mirror.get("insecure") is True, mirror=True)
        for mirror in _mirrors(entry, reference)
    ]
    return [*found, _endpoint(_moved(name, entry, rest), entry.get("insecure") is True)]


def _qualified(host: str, repository: str) -> str:
    """`repository` as the registry knows it: the default one puts a namespace before a single component."""
    defaults = short_names()
    return f"{defaults.namespace}/{repository}" if host == defaults.host and "/" not in repository else repository


def _match(name: str, conf: RegistriesConf) -> Mapping[str, Any] | None:
    """The entry with the longest prefix of `name` that ends at a component."""
    matching = [entry for entry in conf.registries if _covers(_prefix(entry), name)]
    return max(matching, key=lambda entry: len(_prefix(entry)), default=None)


def _prefix(entry: Mapping[str, Any]) -> str:
    return str(entry.get("prefix") or entry.get("location") or "")


def _covers(prefix: str, name: str) -> bool:
    if prefix.startswith("*."):
        return name.partition("/")[0].endswith(prefix[1:])
    return bool(prefix) and (name == prefix or name.startswith((prefix + "/", prefix + ":")))


def _mirrors(entry: Mapping[str, Any], reference: Reference) -> list[Mapping[str, Any]]:
    """The mirrors that may serve `reference`: some are only for digests, some only for tags."""
    refused = "tag-only" if reference.digest else "digest-only"
    digest_only = entry.get("mirror-by-digest-only") is True and not reference.digest
    mirrors = [mirror for mirror in entry.get("mirror", []) if isinstance(mirror, dict) and mirror.get("location")]
    return [] if digest_only else [mirror for mirror in mirrors if mirror.get("pull-from-mirror") != refused]


def _moved(name: str, place: Mapping[str, Any], rest: str | None) -> str:
    """`name` with the matched prefix replaced by the place's location; unchanged where it has none."""
    location = place.get("location")
    if not location:
        return name
    return f"{location}/{name.partition('/')[2]}" if rest is None else f"{location}{rest}"


def _endpoint(name: str, insecure: bool, mirror: bool = False) -> Endpoint:
    host, _, repository = name.partition("/")
    defaults = short_names()
    if host == defaults.host:
        login = (defaults.credentials_key, defaults.host, *defaults.aliases)
        return Endpoint(defaults.endpoint, repository, login, insecure, mirror)
    return Endpoint(host, repository, (host,), insecure, mirror)
