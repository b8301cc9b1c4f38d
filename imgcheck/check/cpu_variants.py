"""Variants of a file for different CPUs: which of them nobody opens, as another one suits the CPU."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from imgcheck.check.context import Context
from imgcheck.check.cpu_host import CpuHost, lacking
from imgcheck.documents.facts import Linkage
from imgcheck.documents.image import FileRecord
from imgcheck.knowledge import Knowledge, cpus
from imgcheck.knowledge.variants import beside, is_variant, variants_among, without_compounds


class _Family(Struct, frozen=True):
    """Files of one directory that do the same, as libmkl_avx2.so and libmkl_def.so."""

    members: tuple[str, ...]
    plain: str
    """The one that is for all CPUs by its name; empty where there is none."""


class Variants:
    """Which files of an image are left alone on a CPU."""

    def __init__(self, context: Context, host: CpuHost) -> None:
        self._context, self._host = context, host
        families = _families(context.knowledge, [record.path for record in context.image.files])
        loaded = context.closure.loaded.items() if families else ()
        by_needed = {path for root, paths in loaded for path in paths if path != root}
        self._by_name = {path: family for path, family in families.items() if path not in by_needed}

    def pass_over(self, record: FileRecord, linkage: Linkage) -> bool:
        """Whether the loader, the program that opens it, or who starts it leaves the file alone on this CPU."""
        guard = cpus.guarded_by(self._context.knowledge, linkage.machine, record.path)
        if guard is not None:
            return self._host.features is None or not guard <= self._host.features
        family = self._by_name.get(record.path)
        if family is None:
            return False
        if linkage.type == "shared":
            # A program opens that for all CPUs where it has none for this one.
            return record.path != family.plain or self._any_runs(record, family)
        return self._is_choice_of_users(record) and self._any_runs(record, family)

    def _is_choice_of_users(self, program: FileRecord) -> bool:
        """Whether which program is started is left to who knows the CPU, a person or a script."""
        named = self._context.closure.runs(program.path) or program.path in self._context.roots.entries
        return self._context.roots.everything or not named

    def _any_runs(self, record: FileRecord, family: _Family) -> bool:
        """Whether the CPU has all that some other file of the family requires."""
        others = (self._context.records[path] for path in family.members if path != record.path)
        return any(self._runs(other) for other in others)

    def _runs(self, record: FileRecord) -> bool:
        facts = self._context.image.objects[record.object]
        if not (facts.isa and facts.linkage):
            return False
        machine, level = facts.linkage.machine, facts.linkage.isa_level
        if level in cpus.LEVELS and lacking(self._host, level):
            return False
        return all(self._host.copes(machine, use) for use in facts.isa.uses if use.answer == "required")


def _families(knowledge: Knowledge, paths: Sequence[str]) -> dict[str, _Family]:
    """The family of each file that has one.

    A name alone says nothing: a program may be called after the CPU that it was built for. Only where another file of
    the same directory differs in such words, or lacks them, is there a choice.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for path in variants_among(knowledge, paths):
        for plain in _plain(knowledge, path):
            members[plain].append(path)
    present = members.keys() & set(paths)
    families = (
        _Family((*of_one, plain), plain) if plain in present else _Family(tuple(of_one), "")
        for plain, of_one in members.items()
    )
    return {path: family for family in families if len(family.members) > 1 for path in family.members}


def _plain(knowledge: Knowledge, path: str) -> Iterable[str]:
    """The variant `path` without the words that make it one, and their numbers; none where that is its directory.

    libggml-cpu-armv8.2_1.so is libggml-cpu.so for some CPUs, _nat_bmi2_adx.so is _nat.so, x86-64-v3-CIE.so is CIE.so,
    and _raw_aesni.so is _raw.so or _raw_aes.so.
    """
    directory, name = posixpath.split(path)
    first, *words = re.split(r"(?=[-_.])", without_compounds(knowledge, name))
    kept, others, behind = "", "", False
    for word in words:
        variant = is_variant(knowledge, f"{directory}/{first}{word}")
        behind = variant or (behind and word[1:].isdigit())
        other = beside(knowledge, word[1:]) if variant else ""
        kept += "" if behind else word
        others += f"{word[0]}{other}" if other else "" if behind else word
    plain = {f"{directory}/{first}{rest}" for rest in (kept, others)}
    return {each for each in plain if not is_variant(knowledge, each)}
