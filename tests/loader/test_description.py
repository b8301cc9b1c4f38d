"""The package's own description calls what there is by the parameters that it has."""

import ast
import inspect

import pytest

import imgcheck.loader
from imgcheck.loader.closures import Closures
from imgcheck.loader.injection import injection_for
from imgcheck.loader.model import Loader, close
from imgcheck.loader.roots import find_roots

CALLED = {
    "find_roots": find_roots,
    "close": close,
    "injection_for": injection_for,
    "Loader": Loader,
    "loader.under": Loader.under,
    "loader.close": Loader.close,
    "Closures": Closures,
}


def calls() -> list[ast.Call]:
    text = inspect.getdoc(imgcheck.loader) or ""
    shown = [line.strip().partition("   ")[0] for line in text.splitlines() if line.startswith("    ")]
    written = [*shown, *text.split("`")[1::2]]
    return [node for line in written for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("call", calls(), ids=ast.unparse)
def test_it_is_called_as_described(call: ast.Call) -> None:
    names = [argument.id for argument in call.args if isinstance(argument, ast.Name)]
    parameters = [name for name in inspect.signature(CALLED[ast.unparse(call.func)]).parameters if name != "self"]
    assert parameters[: len(names)] == names


def test_all_of_it_is_described() -> None:
    assert {ast.unparse(call.func) for call in calls()} == CALLED.keys()
