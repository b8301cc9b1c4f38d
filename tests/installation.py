"""imgcheck as the ready files expect it: the tree of integrations/install, for every user and the system's Python."""

import os
import sys
from functools import cache
from pathlib import Path

from tests.tools import CHECKOUT, cache_directory, download, need, run


@cache
def installed_tree() -> Path:
    """A tree made from this checkout; /usr/bin/python3 runs it, since the tests' Python may be root's alone."""
    return _install("tree")


@cache
def tree_with_python() -> Path:
    """The same with a copy of that interpreter, for nodes without one."""
    return _install("tree-with-python", OWN_PYTHON="1", PATCHELF=need("patchelf"))


def version_in(tree: Path) -> Path:
    """Where the installed version lies in a tree: each has a directory of its own, which bin/imgcheck names."""
    (directory,) = tree.glob("lib/imgcheck-*")
    return directory


def _install(name: str, **more: str) -> Path:
    # Tests run in several processes, and each has its own: it is made anew from what the checkout holds now.
    tree = cache_directory(f"{name}-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}")
    run("rm", "-rf", tree)
    install = CHECKOUT / "integrations" / "install" / "install.sh"
    settings = {"PYTHON": need("python3"), "PIP": f"{sys.executable} -m pip"}
    download(install, tree, env=os.environ | settings | more)
    return tree
