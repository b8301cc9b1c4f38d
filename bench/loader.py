"""The model of the dynamic loader beside the loaders themselves: agreement over whole roots, and the time it takes.

    python -m bench.loader [ROOT ...]

Each dynamic ELF file of a root is traced by the root's own ld.so in a chroot (which needs root), and resolved by the
model: libraries with the file that each became, missing ones, missing symbol versions. Roots are made on the first
run and kept.
"""

import sys
import time
from collections.abc import Sequence

from imgcheck.loader.model import close
from tests.loader.parity import compare
from tests.loader.roots import ROOTS
from tests.loader.walk import profile_of

_SHOWN = 5


def main(names: Sequence[str]) -> int:
    """Prints a line per root; 1 where any file differs."""
    different = 0
    print(f"{'root':<18} {'files':>6} {'agreed':>7} {'skipped':>8} {'model, s':>9}")
    for name in names or list(ROOTS):
        different += _root(name)
    return 1 if different else 0


def _root(name: str) -> int:
    tree = ROOTS[name]()
    image = profile_of(tree.path)
    started = time.process_time()
    close(image, levels=tree.levels)
    seconds = time.process_time() - started
    parity = compare(tree.path, image, levels=tree.levels, below=tree.below)
    print(f"{name:<18} {parity.total:>6} {parity.agreed:>7} {len(parity.skipped):>8} {seconds:>9.2f}", flush=True)
    for path, reason in list(parity.skipped.items())[:_SHOWN]:
        print(f"    {path}: {reason}")
    for path, (real, mine) in list(parity.differences.items())[:_SHOWN]:
        print(f"    {path}: only the loader {_only(real, mine)}, only the model {_only(mine, real)}")
    return len(parity.differences)


def _only(these, those) -> str:
    return str(sorted([*(these.libraries - those.libraries), *(these.versions - those.versions)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
