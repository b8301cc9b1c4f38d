"""`imgcheck store`: the facts that are kept between runs."""

import argparse
import sys
import time
from collections.abc import Sequence

from imgcheck.cli import FOUND, OK, options
from imgcheck.errors import ImgcheckError, UsageError
from imgcheck.profile.store import DEFAULT_LIMIT, Store, StoredFile, open_store
from imgcheck.report.text import safe
from imgcheck.streams import put

_EXAMPLES = """
imgcheck store ls
imgcheck store prune --limit 500M
imgcheck store verify --store /shared/imgcheck
"""


def run(arguments: Sequence[str]) -> int:
    parser = options.parser("store", "Lists, shrinks or verifies the facts kept between runs.", _EXAMPLES)
    parser.add_argument("action", metavar="ls|prune|verify", choices=("ls", "prune", "verify"), help="what to do")
    parser.add_argument("--store", metavar="DIR", type=options.path, help="the store (default: the user's cache)")
    keep = "prune: keep at most this (default: 4G)"
    parser.add_argument("--limit", metavar="SIZE", type=options.size, default=DEFAULT_LIMIT, help=keep)
    parsed = parser.parse_args(arguments)
    if parsed.store and not parsed.store.exists():
        raise UsageError(f"--store {parsed.store}: no such directory")
    store = open_store(parsed.store, key="")
    if store is None:
        raise UsageError("there is no directory of this user's own to keep facts in", "name the store with --store DIR")
    return {"ls": _list, "prune": _prune, "verify": _verify}[parsed.action](store, parsed)


def _list(store: Store, _parsed: argparse.Namespace) -> int:
    files = list(store.files())
    for file in files:
        print(f"{_row(file)}  {safe(store.reference(file))}".rstrip())
    print(f"{_entries(len(files))}, {sum(file.size for file in files)} bytes in {store.directory}")
    return OK


def _prune(store: Store, parsed: argparse.Namespace) -> int:
    dropped = store.prune(parsed.limit)
    print(f"dropped {_entries(len(dropped))}, {sum(file.size for file in dropped)} bytes")
    return _said(store, OK)


def _verify(store: Store, _parsed: argparse.Namespace) -> int:
    damaged = list(store.damaged())
    for file in damaged:
        store.drop(file)
        put(sys.stderr, f"damaged, dropped: {_row(file)}\n")
    sound = len(list(store.files()))
    dropped = f", {len(damaged)} {'was' if len(damaged) == 1 else 'were'} dropped" if damaged else ""
    print(f"{_entries(sound)} {'is' if sound == 1 else 'are'} sound{dropped}")
    return _said(store, FOUND if damaged else OK)


def _said(store: Store, status: int) -> int:
    """`status`, unless something could not be done, which is told."""
    if store.trouble:
        raise ImgcheckError(store.trouble)
    return status


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _row(file: StoredFile) -> str:
    used = time.strftime("%Y-%m-%d", time.localtime(file.used))
    return f"{file.kind.removesuffix('s'):<8} {file.name}  {file.size:>10}  {used}"
