"""Finds, merges and types the files of rules/."""

import hashlib
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from imgcheck.errors import KnowledgeError
from imgcheck.knowledge.types import Catalogued, Runtime

T = TypeVar("T")

_PACKAGE = Path(__file__).resolve().parent.parent


def rules_directory() -> Path:
    """Where the data files lie: in the package when installed, beside it in a checkout."""
    installed = _PACKAGE / "rules"
    return installed if installed.is_dir() else _PACKAGE.parent / "rules"


class Knowledge:
    """All that rules/ holds, each table read on first use. `site` directories override by id, the last wins."""

    def __init__(self, site: tuple[Path, ...] = ()) -> None:
        self._roots = (rules_directory(), *site)
        for directory in site:
            if not directory.is_dir():
                raise KnowledgeError(f"--rules {directory}: not a directory")

    @cached_property
    def catalogue(self) -> dict[str, Catalogued]:
        """Rule id to its catalogue entry (rules/catalogue/*.toml, one `[[rule]]` each)."""
        return {entry.id: entry for entry in self.entries("catalogue", "rule", Catalogued)}

    @cached_property
    def runtimes(self) -> dict[str, Runtime]:
        """Runtime id to its description (rules/runtimes/*.toml, one `[[runtime]]` each)."""
        return {entry.id: entry for entry in self.entries("runtimes", "runtime", Runtime)}

    def entries(self, folder: str, key: str, type: type[T]) -> list[T]:
        """The `[[key]]` entries of every TOML file in `folder` as `type`, later roots overriding by `id`."""
        merged: dict[str, T] = {}
        for path in self._files(folder):
            for raw in self._table(path).get(key, []):
                entry = _convert(raw, type, path)
                merged[entry.id] = entry  # type: ignore[attr-defined]
        return list(merged.values())

    def table(self, file: str) -> dict[str, Any]:
        """One file such as "tables/cuda.toml", top-level keys of later roots overriding."""
        merged: dict[str, Any] = {}
        for root in self._roots:
            if (root / file).is_file():
                merged |= self._table(root / file)
        if not merged:
            raise KnowledgeError(f"rules/{file} is missing from this installation", hint="reinstall imgcheck")
        return merged

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every data file: two reports with the same one rest on the same knowledge."""
        total = hashlib.sha256()
        for root in self._roots:
            for path in sorted(root.rglob("*.toml")):
                total.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
        return total.hexdigest()

    def _files(self, folder: str) -> list[Path]:
        roots = self._roots[:1] if folder == "analysis" else self._roots
        return [path for root in roots for path in sorted((root / folder).glob("*.toml"))]

    def _table(self, path: Path) -> dict[str, Any]:
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise KnowledgeError(f"{path}: not valid TOML: {error}") from None
        except OSError as error:
            raise KnowledgeError(f"{path}: {error.strerror}") from None


def _convert(raw: Any, type: type[T], path: Path) -> T:
    try:
        return msgspec.convert(raw, type)
    except msgspec.ValidationError as error:
        name = raw.get("id", "an entry without id") if isinstance(raw, dict) else "an entry"
        raise KnowledgeError(f"{path}: {name}: {error}") from None
