"""Import statements, held against Python's own parser: what a text names, and how surely it imports that."""

import ast
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy
import pygments
import pytest
import requests
import rich
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.loader.statements import Statements, of_application, of_package


@pytest.mark.parametrize(
    ("text", "certain", "conditional", "later"),
    [
        ("import a\nfrom b.c import d\n", "a b.c.d", "", ""),
        ("import a.b as c, \\\n  d", "a.b d", "", ""),
        ("try: import a\nexcept ImportError: a = None; import b\n", "", "a b", ""),
        ("\tfrom a import (\n b, # one)\n c as d,\n)\n", "a.b a.c", "", ""),
        ('"""\nimport a\n"""\nimport b\n', "b", "", ""),
        ('def f():\n    """\nMargin.\n    """\n    import a\n', "", "", "a"),
        ('x = """\nimport a\n', "a", "", ""),
        ("from . import a\nfrom .b import c\nfrom .. import d\nfrom ...e.f import *\n", ".a .b.c ..d ...e.f", "", ""),
        ("from .import a\nfrom.b import c\nfromage import d\n", ".a .b.c", "", ""),
        ("from a import *\nfrom . import *\n", "a .", "", ""),
        ("important = 1\nreimport a\n", "", "", ""),
        ("import a as np  # import b\r\n", "a", "", ""),
        ("try:\n    import a\nexcept ImportError:\n    from b import c\nimport d\n", "d", "a b.c", ""),
        ("try:\n    import a\nfinally:\n    pass\nimport a\n", "a", "", ""),
        ("def f(\n    x,\n) -> int:\n    import a\n    return a.b(x)\nimport c\n", "c", "", "a"),
        ("async def f():\n    import a\n@wraps\ndef g():\n    import b\nimport c\n", "c", "", "a b"),
        ("class C:\n    import a\n\n    def f(self):\n        import b\n", "a", "", "b"),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import c\nimport b\n", "b", "c", ""),
        ("if typing.TYPE_CHECKING:\n    import a\n", "", "", ""),
        (
            "if sys.platform == 'win32':\n    import a\nelif os.name=='nt':\n    import b\nelse:\n    import c\n",
            "",
            "c",
            "",
        ),
        ('if sys.platform.startswith("darwin"):\n    import a\n', "", "", ""),
        ("if sys.platform != 'win32':\n    import a\n", "", "a", ""),
        ("if os.environ.get('X'):\n    import a\nwith quiet():\n    import b\n", "b", "a", ""),
        ("if __name__ == '__main__':\n    import a\n", "", "", ""),
        ("x = importlib.import_module('a.b')\n", "", "", "a.b"),
        ("x = import_optional_dependency('a')\ny = find_spec( \"b\")\nz = LazyLoader('c')\nf('d')\n", "", "", "a b c"),
    ],
)
def test_import_statements_are_read(text: str, certain: str, conditional: str, later: str) -> None:
    found = of_package(text.encode())
    assert (set(found.certain), set(found.conditional), set(found.later)) == (
        set(certain.split()),
        set(conditional.split()),
        set(later.split()),
    )


def test_names_in_strings_are_read_where_that_is_asked() -> None:
    text = b"""A = "one.two:three", 'four', "not a name", "/five", 'six."""
    assert of_package(text) == Statements()
    assert of_application(text) == Statements(later=("four", "one"), mentions=("/five",))
    assert of_application(b"import_module('one.two')\nx = 'two'\n") == Statements(("one.two",), later=("one", "two"))


def test_a_whole_path_is_read_behind_which_words_stand() -> None:
    text = b"""os.system("/opt/solver -i in"); run(f'/opt/other {x}', shell=True)\nlib = 'k_sm80.cubin'"""
    assert of_application(text).mentions == ("/opt/other", "/opt/solver", "k_sm80.cubin")
    assert of_application(b"""say("see /opt/solver -i"); a = "/opt/x\n" + "b" """).mentions == ()


def test_functions_of_an_application_count_and_what_is_for_checkers_alone_does_not() -> None:
    text = b"if TYPE_CHECKING:\n    import a\n\n\ndef main():\n    import b\nif __name__ == '__main__':\n  import c"
    assert of_application(text) == Statements(("b", "c"), later=("__main__",))


@pytest.mark.parametrize(
    ("text", "anything"),
    [
        ("import_module(name)", True), ("import_module( 'name')", False), ("exec(code)", True), ("model.eval()", False),
        ("executor.submit(f)", False), ("sys.path.append('x')", True), ("runpy.run_path(p)", True),
    ],
)  # fmt: skip
def test_what_imports_by_names_that_it_works_out_may_import_anything(text: str, anything: bool) -> None:
    found = of_application(text.encode())
    assert found.anything == anything
    assert not found.plugins


@given(st.binary())
def test_any_bytes_may_stand_for_a_text(data: bytes) -> None:
    named = [*of_application(data).named, *of_package(data).named]
    assert all(part.isidentifier() for name in named for part in name.lstrip(".").split(".") if name.strip("."))


@pytest.mark.parametrize(
    "text",
    [
        "from a import (b, # one\n" + "c # two # three\n" * 20_000,
        "import (" * 20_000,
        "def f():\n" + "    import a\n" * 50_000,
        '"""' * 100_001,
        "\n \n" * 200_000 + "import a",
        "from " + "." * 300_000 + " import a",
    ],
    ids=["open list", "many lists", "long function", "odd quotes", "blank lines", "dots"],
)
def test_hostile_texts_are_read_in_time(text: str) -> None:
    began = time.process_time()
    of_package(text.encode())
    of_application(text.encode())
    assert time.process_time() - began < 5


TEXTS = sorted(
    path
    for package in (msgspec, numpy, pygments, pytest, requests, rich)
    for path in Path(str(package.__file__)).parent.rglob("*.py")
)


def test_published_texts_are_read_as_python_reads_them() -> None:
    assert len(TEXTS) > 500
    differing = {str(path): _differing(path.read_bytes()) for path in TEXTS}
    assert not {path: names for path, names in differing.items() if names}


def _differing(text: bytes) -> set[str]:
    """What is called certain and is in a function, or is left out, or called less than certain, at the text's top."""
    found, tree = of_package(text), ast.parse(text)
    missing = set(_imports(tree.body)) - set(found.certain)
    return missing | (set(found.certain) - set(_imports(_outside_of_functions(tree))))


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield inner
            yield from _outside_of_functions(inner)


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names of import statements among `nodes`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = "." * node.level + (node.module or "")
            between = "." if node.module else ""
            yield from (above if alias.name == "*" else f"{above}{between}{alias.name}" for alias in node.names)
