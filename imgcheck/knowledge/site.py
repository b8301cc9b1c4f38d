"""What a site's data (`--rules DIR`) may hold: nothing that nobody would read, and no message that nobody would see."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from imgcheck.errors import KnowledgeError
from imgcheck.knowledge.types import Catalogued

OURS = frozenset({"analysis"})
"""Folders that a site cannot override: what is found in files is kept beyond one command."""
WHOLE = {"mpi": ("mpi.toml",), "tables": ("nfd.toml", "registries.toml"), "tables/pci": ("nvidia.toml",)}
"""Folders that are read by the names of their files, whose top-level keys override each other."""
_NAMED_BY_ID = "tables/pci"
"""Its top-level keys are ids, of which a site may have any."""


def refuse_strays(directory: str, names: Iterable[str], bundled: list[str], table: Callable[[str], dict]) -> None:
    """Raise KnowledgeError for the first file below `directory` that, or a key of which, nothing reads.

    `bundled` are the paths of our own files, and `table` reads a file of either by its path from "ours/" or "site/".
    """
    folders = sorted({name.rpartition("/")[0] for name in bundled} - OURS)
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        if folder not in folders or file not in WHOLE.get(folder, (file,)):
            listed = ", ".join(f"{each}/{one}" for each in folders for one in WHOLE.get(each, ("*.toml",)))
            raise KnowledgeError(f"{directory}/{name}: nothing is read from there", f"data of a site lie in {listed}")
        if folder == _NAMED_BY_ID:
            continue
        beside = [name] if folder in WHOLE else [each for each in bundled if each.rpartition("/")[0] == folder]
        keys = list(dict.fromkeys(key for each in beside for key in table(f"ours/{each}")))
        stray = next((key for key in table(f"site/{name}") if key not in keys), None)
        if stray is not None:
            raise KnowledgeError(f"{directory}/{name}: nothing reads `{stray}`", f"{folder}/ holds {', '.join(keys)}")


def refuse_unfit_rules(path: str, entries: Iterable[Catalogued], bundled: dict[str, Catalogued]) -> None:
    """Raise KnowledgeError for an entry of `path` that no check fires, or whose texts none can fill."""
    for entry in entries:
        ours = bundled.get(entry.id)
        if ours is None:
            raise KnowledgeError(
                f"{path}: {entry.id}: no check makes such a finding", "a site may reword what `imgcheck rules` lists"
            )
        lost = sorted(ours.variants.keys() - entry.variants.keys())
        if lost:
            raise KnowledgeError(f"{path}: {entry.id}: variants lacks {', '.join(lost)}", "copy the whole entry first")
        unknown = sorted(_placeholders(entry) - _placeholders(ours))
        if unknown:
            raise KnowledgeError(
                f"{path}: {entry.id}: nothing fills {{{unknown[0]}}}",
                f"its checks know {', '.join(f'{{{name}}}' for name in sorted(_placeholders(ours))) or 'none'}",
            )


def _placeholders(entry: Catalogued) -> set[str]:
    texts = (entry.title, entry.predicted_error, entry.why, entry.remedy, *entry.variants.values())
    return {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}


def in_quotes(problem: str, raw: Any) -> str:
    """How to write a value of `raw` that is text and was written as a number; "" where `problem` is another."""
    found = re.search(r"Expected `str`, got `(?:float|int)`.* at `\$\.?(?P<where>.*)`", problem)
    value: Any = raw
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", found["where"]) if found else ():
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return ""
    if not found or not isinstance(value, int | float):
        return ""
    key = re.sub(r"\[\d+\]$", "", found["where"]).rpartition(".")[2]
    shortened = isinstance(value, float) and len(str(value).partition(".")[2]) == 1
    other = f', or if that was meant "{value}0", which as a number is the same' if shortened else ""
    return f'write it in quotes: {key} = "{value}"{other}'


def way_out(error: msgspec.ValidationError, raw: Any) -> str:
    """The hint for an entry that is not of its type."""
    if "missing required field" in str(error):
        return "an entry replaces the whole one of its id, so it needs all keys: docs/site-rules.md"
    return in_quotes(str(error), raw)
