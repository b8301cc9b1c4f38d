"""Finds, merges and types the files of rules/.

A wheel brings their parsed form in one file beside them (hatch_build.py), since parsing TOML would take longer than a
whole preflight: JSON of file to [CRC-32 of its bytes, table]. A file that somebody has changed is parsed itself.
"""

import binascii
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from imgcheck.errors import KnowledgeError
from imgcheck.knowledge.types import Catalogued, Family, Runtime

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARSED = "parsed.json"


def rules_directory() -> "Path":
    """Where the data files lie: in the package when installed, beside it in a checkout."""
    from pathlib import Path

    return Path(_rules())


def _rules() -> str:
    installed = f"{_PACKAGE}/rules"
    return installed if os.path.isdir(installed) else f"{os.path.dirname(_PACKAGE)}/rules"


class Knowledge:
    """All that rules/ holds, each table read on first use. `site` directories override by id, the last wins."""

    def __init__(self, site: "tuple[os.PathLike[str] | str, ...]" = ()) -> None:
        self._roots = (_rules(), *(os.fspath(directory) for directory in site))
        self._tables: dict[str, dict[str, Any]] = {}
        self._names: dict[str, list[str]] = {}
        for directory in self._roots[1:]:
            if not os.path.isdir(directory):
                raise KnowledgeError(f"--rules {directory}: not a directory")
            self._refuse_strays(directory)

    def _refuse_strays(self, directory: str) -> None:
        """A file or key that nothing reads would be an overriding that silently does not happen."""
        from imgcheck.knowledge.site import refuse_strays

        roots = {"ours": self._roots[0], "site": directory}

        def table(path: str) -> dict[str, Any]:
            root, _, name = path.partition("/")
            return self._table(f"{roots[root]}/{name}")

        refuse_strays(directory, _below(directory), _below(self._roots[0]), table)

    @cached_property
    def catalogue(self) -> dict[str, Catalogued]:
        """Rule id to its catalogue entry (rules/catalogue/*.toml, one `[[rule]]` each)."""
        entries = {entry.id: entry for entry in self.entries("catalogue", "rule", Catalogued)}
        if len(self._roots) > 1:
            self._refuse_unfit_rules()
        return entries

    def _refuse_unfit_rules(self) -> None:
        from imgcheck.knowledge.site import refuse_unfit_rules

        ours = Knowledge().catalogue
        for root in self._roots[1:]:
            for name in self._listed(f"{root}/catalogue"):
                path = f"{root}/catalogue/{name}"
                refuse_unfit_rules(path, _convert(self._table(path).get("rule", []), Catalogued, path), ours)

    @cached_property
    def runtimes(self) -> dict[str, Runtime]:
        """Runtime id to its description (rules/runtimes/*.toml, one `[[runtime]]` each)."""
        return {entry.id: entry for entry in self.entries("runtimes", "runtime", Runtime)}

    @cached_property
    def families(self) -> dict[str, Family]:
        """What the runtimes of a family have in common (the same files, one `[[family]]` each)."""
        return {entry.id: entry for entry in self.entries("runtimes", "family", Family)}

    def family_of(self, runtime: Runtime) -> Family:
        """The family of `runtime`; one without peculiarities has no entry."""
        return self.families.get(runtime.family) or Family(runtime.family, ())

    @property
    def sites(self) -> tuple[str, ...]:
        """The directories of --rules, which override what imgcheck ships."""
        return self._roots[1:]

    @cached_property
    def asked_paths(self) -> tuple[str, ...]:
        """What the runtimes ask of an image's tree: a profile must look for it (types.Runtime.asked_paths)."""
        owned = {family.owns_directory for family in self.families.values()} - {""}
        return tuple(sorted(owned.union(*(runtime.asked_paths for runtime in self.runtimes.values()))))

    def entries(self, folder: str, key: str, type: type[T]) -> list[T]:
        """The `[[key]]` entries of every TOML file in `folder` as `type`, later roots overriding by `id`."""
        merged: dict[str, T] = {}
        for path in self._files(folder):
            listed = self._table(path).get(key, [])
            if not isinstance(listed, list):
                raise KnowledgeError(f"{path}: `{key}` is no list of tables: write [[{key}]]")
            merged |= {entry.id: entry for entry in _convert(listed, type, path)}  # type: ignore[attr-defined]
        return list(merged.values())

    def table(self, file: str) -> dict[str, Any]:
        """One file such as "tables/cuda.toml", top-level keys of later roots overriding."""
        merged: dict[str, Any] = {}
        for root in self._overriding(file.partition("/")[0]):
            if os.path.isfile(f"{root}/{file}"):
                merged |= self._table(f"{root}/{file}")
        if not merged:
            raise KnowledgeError(f"rules/{file} is missing from this installation", hint="reinstall imgcheck")
        return merged

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every data file: two reports with the same one rest on the same knowledge."""
        import hashlib

        total = hashlib.sha256()
        for root in self._roots:
            for name in sorted(_below(root), key=lambda name: name.split("/")):
                with open(f"{root}/{name}", "rb") as file:
                    total.update(name.encode() + b"\0" + file.read() + b"\0")
        return total.hexdigest()

    def _files(self, folder: str) -> list[str]:
        directories = [f"{root}/{folder}" for root in self._overriding(folder)]
        return [f"{directory}/{name}" for directory in directories for name in self._listed(directory)]

    def _listed(self, directory: str) -> list[str]:
        if directory not in self._names:
            self._names[directory] = _toml_files(directory)
        return self._names[directory]

    def _overriding(self, folder: str) -> tuple[str, ...]:
        """The roots whose files in `folder` count: rules/analysis/ is part of the engines' version."""
        return self._roots[:1] if folder == "analysis" else self._roots

    def _table(self, path: str) -> dict[str, Any]:
        if path not in self._tables:
            self._tables[path] = self._read(path)
        return self._tables[path]

    def _read(self, path: str) -> dict[str, Any]:
        try:
            with open(path, "rb", buffering=0) as file:  # some forty files, and a buffer takes as long as reading one
                data = file.readall()
        except OSError as error:
            raise KnowledgeError(f"{path}: {error.strerror}") from None
        kept = self._parsed.get(path.removeprefix(f"{self._roots[0]}/"))
        if kept is not None and kept[0] == binascii.crc32(data):
            return msgspec.json.decode(kept[1])
        return _parse(path, data)

    @cached_property
    def _parsed(self) -> dict[str, tuple[int, msgspec.Raw]]:
        try:
            with open(f"{self._roots[0]}/{PARSED}", "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, tuple[int, msgspec.Raw]])
        except (OSError, msgspec.MsgspecError):
            return {}


def _parse(path: str, data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KnowledgeError(f"{path}: not valid TOML: {error}") from None


def _toml_files(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(".toml"))
    except OSError:
        return []


def _below(root: str) -> list[str]:
    """Paths of all TOML files below `root`, relative to it."""
    places = [(place.removeprefix(root).lstrip("/"), names) for place, _, names in os.walk(root)]
    return [f"{place}/{name}".lstrip("/") for place, names in places for name in names if name.endswith(".toml")]


def _convert(listed: list[Any], type: type[T], path: str) -> list[T]:
    try:
        return msgspec.convert(listed, list[type])  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return [_convert_one(raw, type, path) for raw in listed]


def _convert_one(raw: Any, type: type[T], path: str) -> T:
    """`raw` as `type`; raises KnowledgeError, which names it."""
    try:
        return msgspec.convert(raw, type)
    except msgspec.ValidationError as error:
        name = raw.get("id", "an entry without id") if isinstance(raw, dict) else "an entry"
        from imgcheck.knowledge.site import way_out

        raise KnowledgeError(f"{path}: {name}: {error}", way_out(error, raw)) from None
