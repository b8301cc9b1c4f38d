"""Paths of files of which a program or the loader picks the one that fits the CPU (rules/analysis/variants.toml)."""

from collections.abc import Sequence
from functools import lru_cache

from imgcheck.knowledge.store import Knowledge

_SEPARATORS = "-_."
_SPLIT = str.maketrans("-.", "__")


def variants_among(knowledge: Knowledge, paths: Sequence[str]) -> list[str]:
    """Those of `paths` that are variants. Hardly one is, so that all are asked at once for the words first."""
    directories, words, compounds, families = _rules(knowledge)
    places = {path.rpartition("/")[0] for path in paths}
    special = {place for place in places if not directories.isdisjoint(place.split("/"))}
    names = "_".join([path.rpartition("/")[2] for path in paths]).lower()
    held = {*words, *families}.intersection(names.translate(_SPLIT).split("_"))
    held.update(compound for compound in compounds if compound in names)
    if not special and not held:
        return []
    return [path for path in paths if is_variant(knowledge, path)]


def is_variant(knowledge: Knowledge, path: str) -> bool:
    """Whether `path` lies in a directory for some CPUs, or its file name holds such a word, set off by `-`, `_`, `.`.

    A name never begins with a variant of one word.
    """
    directories, words, compounds, families = _rules(knowledge)
    *places, name = path.strip("/").split("/")
    name = name.lower()
    _, *parts = name.translate(_SPLIT).split("_")
    if not words.isdisjoint(parts) or not directories.isdisjoint(places):
        return True
    if not families.keys().isdisjoint(parts) and _of_family(families, parts, name):
        return True
    held = [compound for compound in compounds if compound in name]
    return bool(held) and any(_set_off(name, compound) for compound in held)


def _of_family(families: dict[str, str], parts: list[str], name: str) -> bool:
    return any(word in families and name.startswith(families[word]) for word in parts)


def _set_off(name: str, word: str) -> bool:
    start = name.find(word)
    while start >= 0:
        end = start + len(word)
        if name[max(start - 1, 0) : start] in ("", *_SEPARATORS) and name[end : end + 1] in ("", *_SEPARATORS):
            return True
        start = name.find(word, start + 1)
    return False


def beside(knowledge: Knowledge, word: str) -> str:
    """The word that a file for all CPUs may have in place of the variant `word`; "" where it has none."""
    found: dict[str, str] = knowledge.table("analysis/variants.toml")["beside"]
    return found.get(word.lower(), "")


def without_compounds(knowledge: Knowledge, name: str) -> str:
    """A file's name without its variants of several words, and one of the separators around each."""
    for compound in _rules(knowledge)[2]:
        at = name.lower().find(compound)
        if at >= 0 and _set_off(name.lower(), compound):
            name = name[: max(at - 1, 0)] + name[at + len(compound) + (at == 0) :]
    return name


@lru_cache(maxsize=4)
def _rules(knowledge: Knowledge) -> tuple[frozenset[str], frozenset[str], tuple[str, ...], dict[str, str]]:
    """Directories, words, those with a separator inside, and words that tell only behind a certain beginning."""
    rules = knowledge.table("analysis/variants.toml")
    families: dict[str, str] = rules["families"]
    tokens = [token for token in rules["tokens"] if token not in families]
    words = frozenset(token for token in tokens if token.isalnum())
    directories = frozenset((*rules["hwcaps"], *rules["legacy_hwcaps"]))
    return directories, words, tuple(token for token in tokens if token not in words), families
