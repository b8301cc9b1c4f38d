"""What runs whatever users set, and what runs where they set nothing, in one."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec import structs

from imgcheck.loader.closure import Roots

T = TypeVar("T")


def with_usual(every: Roots, usual: Roots) -> Roots:
    """`every` run that may be, and the `usual` one: what is certain of either counts as certain.

    How a program starts in the usual run is what is told of it.
    """
    certain = {*_certain(every), *_certain(usual)}
    entries, imports = _both(every.entries, usual.entries), _both(every.imports, usual.imports)
    told = {path: found for path, found in every.environments.items() if path not in usual.entries}
    return structs.replace(
        every,
        entries=entries,
        imports=imports,
        everything=every.everything or usual.everything,
        in_part=every.in_part or usual.in_part,
        steered=_both((path for path in every.steered if path not in usual.entries), usual.steered),
        environments=told | usual.environments,
        perhaps=tuple(path for path in _both(entries, imports) if path not in certain),
        always=_both(every.always, usual.always),
        misfits=_both(every.misfits, usual.misfits),
        guarded=_both(every.guarded, usual.guarded),
        named=_both(every.named, usual.named),
        modules=_both(every.modules, usual.modules),
        ways=every.ways | usual.ways,
        unstartable=_both(every.unstartable, usual.unstartable),
        from_workdir=_both(every.from_workdir, usual.from_workdir),
        closed=_both(every.closed, usual.closed),
    )


def _certain(roots: Roots) -> set[str]:
    return {*roots.entries, *roots.imports} - {*roots.perhaps}


def _both(one: Iterable[T], other: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*one, *other)))
