"""Names in the strings of programs, libraries and texts -> the files of the image that they may open by them."""

import fnmatch
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import structs

from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import ImageProfile
from imgcheck.loader.tree import Tree

_MOST = 64
"""Files that one may open."""


def with_mentions(image: ImageProfile, tree: Tree) -> ImageProfile:
    """The profile with TreeIndex.mentions, made of the names in its facts, which these lose; `tree` is its own."""
    files = _Files(image, tree)
    named = {record.path: _names(image.facts(record)) for record in image.files}
    named |= {code.path: code.mentions for code in image.tree.python_code}
    found = {path: tuple(files.led_to(path, names)) for path, names in named.items() if names}
    return structs.replace(
        image,
        objects={key: _without(facts) for key, facts in image.objects.items()},
        tree=structs.replace(
            image.tree,
            mentions={path: targets for path, targets in found.items() if targets},
            python_code=tuple(structs.replace(code, mentions=()) for code in image.tree.python_code),
        ),
    )


def _names(facts: CodeFacts) -> tuple[str, ...]:
    return facts.linkage.mentions if facts.linkage else ()


def _without(facts: CodeFacts) -> CodeFacts:
    return structs.replace(facts, linkage=structs.replace(facts.linkage, mentions=())) if facts.linkage else facts


class _Files:
    """The files with code of an image by all their names."""

    def __init__(self, image: ImageProfile, tree: Tree) -> None:
        self._tree = tree
        self._by_name = defaultdict(list, {name: list(paths) for name, paths in tree.by_name.items()})
        for record in image.files:
            if record.path not in tree.linkage:
                self._by_name[posixpath.basename(record.path)].append(record.path)

    def led_to(self, path: str, names: Iterable[str]) -> list[str]:
        """The files that the names in the one at `path` may stand for, but itself."""
        found = dict.fromkeys(target for name in names for target in self._of(name))
        found.pop(path, None)
        return list(found)[:_MOST]

    def _of(self, name: str) -> Iterator[str]:
        directory, _, base = name.rpartition("/")
        matching = fnmatch.filter(self._by_name, base) if "*" in base else [base]
        paths = [path for each in matching for path in self._by_name.get(each, ())]
        if not directory or "*" in directory:
            yield from paths
        elif directory.startswith("/"):
            yield from (path for path in paths if posixpath.dirname(path) == self._tree.canonical(directory))
        else:
            yield from (path for path in paths if posixpath.dirname(path).endswith(f"/{directory}"))
