"""Modules of packages: what an import brings is what Python brings, on packages made at random."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from imgcheck.loader.statements import of_application, of_package
from imgcheck.profile.python_packages import PythonTexts
from tests.loader.builder import Root

SITE = "/usr/lib/python3.11/site-packages"
NATIVE = "cpython-311-x86_64-linux-gnu.so"
TEXTS = {
    f"{SITE}/deep/__init__.py": "from . import light, _core\n",
    f"{SITE}/deep/light.py": "def late():\n    from . import _lazy\n",
    f"{SITE}/deep/heavy.py": "import other\nfrom .sub import more\n",
    f"{SITE}/deep/sub/__init__.py": "",
    f"{SITE}/deep/sub/more.py": "try:\n    from .._native import run\nexcept ImportError:\n    raise\n",
    f"{SITE}/deep/__main__.py": "from . import heavy\n",
    f"{SITE}/other/__init__.py": "from other import _core\n",
    f"{SITE}/alone/__init__.py": "",
    f"{SITE}/through/__init__.py": "from deep.heavy import x\n",
    "/app/light.py": "import deep\n",
    "/app/alone.py": "import alone\n",
    "/app/heavy.py": "from deep import heavy\n",
    "/app/native.py": "from deep._native import run\n",
    "/app/via.py": "def main():\n    import through\n",
    "/app/perhaps.py": "try:\n    import deep.heavy\nexcept ImportError:\n    pass\n",
    "/app/start.sh": "#!/bin/sh\nexec python3 -m deep.heavy\n",
}
TEXTS |= {f"{SITE}/{name}-1.0.dist-info/METADATA": f"Name: {name}\n" for name in ("alone", "deep", "other")}
NATIVES = ("deep/_core", "deep/_native", "deep/_lazy", "deep/_unnamed", "other/_core", "alone/_core")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    root = Root(tmp_path_factory.mktemp("packages") / "root")
    for program in ("/usr/bin/python3.11", "/bin/sh"):
        root.program(program)
    root.link("/usr/bin/python3", "python3.11")
    for name in NATIVES:
        root.write("/module.h", f"void PyInit_{Path(name).name}(void){{}}\n")
        root.library(f"{SITE}/{name}.{NATIVE}", flags=["-x", "c", "-include", str(root.at("/module.h"))])
    for path, text in TEXTS.items():
        root.write(path, text)
    root.at("/app/start.sh").chmod(0o755)
    return root.profile()


@pytest.mark.parametrize(
    ("command", "certain", "perhaps"),
    [
        ("python3 /app/light.py", "deep/_core deep/_unnamed", "deep/_lazy deep/_native other/_core"),
        ("python3 /app/heavy.py", "deep/_core deep/_unnamed deep/_native other/_core", "deep/_lazy"),
        ("python3 /app/native.py", "deep/_core deep/_unnamed deep/_native", "deep/_lazy other/_core"),
        ("python3 /app/via.py", "deep/_core deep/_unnamed deep/_native other/_core", "deep/_lazy"),
        ("python3 /app/perhaps.py", "", "deep/_core deep/_unnamed deep/_lazy deep/_native other/_core"),
        ("python3 -c 'import\tdeep.heavy'", "deep/_core deep/_unnamed deep/_native other/_core", "deep/_lazy"),
        ("python3 -c 'from\tdeep\timport\t_lazy'", "deep/_core deep/_unnamed deep/_lazy", "deep/_native other/_core"),
        ("python3 /app/alone.py", "", "alone/_core"),
        ("python3 -m deep", "deep/_core deep/_unnamed deep/_native other/_core", "deep/_lazy alone/_core"),
        ("/app/start.sh", "deep/_core deep/_unnamed deep/_native other/_core", "deep/_lazy alone/_core"),
    ],
)
def test_compiled_modules_come_with_those_that_import_them(
    image: ImageProfile, command: str, certain: str, perhaps: str
) -> None:
    words = tuple(word.strip("'").replace("\t", " ") for word in command.split(" "))
    closure = close(image, find_roots(image, words))
    reached = {name: closure.reach(f"{SITE}/{name}.{NATIVE}") for name in NATIVES}
    assert {name for name, reach in reached.items() if reach == "import"} == set(certain.split())
    assert {name for name, reach in reached.items() if reach == "path"} == set(perhaps.split())


_MODULES = ("p", "p.a", "p.b", "p.q", "p.q.c", "p.q.d")
_FILES = {"p": "p/__init__.py", "p.q": "p/q/__init__.py"}
_OTHERS = ("x", "y", "z")
_ABSOLUTE = st.sampled_from([f"import {name}" for name in (*_MODULES, *_OTHERS)])
_RELATIVE = {
    "p": ("from . import a", "from .q import c", "from .b import *"),
    "p.a": ("from . import b", "from .q.d import x as _", "from p import q"),
    "p.b": ("from .a import *", "from . import q, a", "from p.q import (c,\n    d)"),
    "p.q": ("from . import c", "from .. import a", "from ..b import *"),
    "p.q.c": ("from . import d", "from .. import b", "from ..a import *"),
    "p.q.d": ("from .c import *", "from .. import *", "import p.b as _"),
}
_FORMS = ("{}", "try:\n    {}\nexcept ImportError:\n    pass", "def f():\n    {}", '"""\n{}\n"""')


@st.composite
def packages(draw: st.DrawFn) -> dict[str, str]:
    """Texts of the modules of a package, by their files."""
    texts = {}
    for module in _MODULES:
        statements = st.one_of(_ABSOLUTE, st.sampled_from(_RELATIVE[module]).filter(lambda s: "import x" not in s))
        lines = draw(st.lists(st.tuples(st.sampled_from(_FORMS), statements), max_size=2))
        named = _FILES.get(module, f"{module.replace('.', '/')}.py")
        texts[named] = "".join(f"{form.format(line)}\n" for form, line in lines if "\n" not in line or form == "{}")
    return texts


@settings(max_examples=40, deadline=None)
@given(
    packages(), st.sampled_from([f"import {name}" for name in _MODULES] + ["from p import a, q", "from p.q import d"])
)
def test_what_an_import_brings_is_what_python_brings(texts: dict[str, str], line: str) -> None:
    texts = texts | {f"{name}.py": "" for name in _OTHERS}
    statements = {f"/s/{path}": of_package(text.encode()) for path, text in texts.items()}
    python = PythonTexts(statements | {"/app/m.py": of_application(line.encode())}, (), ["/s"])
    codes = {code.path: code for code in python.code()}
    modules = {module.name: module for module in python.modules()}
    asked = codes["/app/m.py"].imports
    certain = {*codes["/s/p"].imports}.union(*(modules[name].imports for name in asked if name in modules))
    every = certain.union(codes["/s/p"].perhaps)
    loaded = _loaded(texts, line)
    assert certain & set(_OTHERS) <= loaded <= every


def _loaded(texts: dict[str, str], line: str) -> set[str]:
    """The top-level modules that Python has loaded after `line`."""
    with tempfile.TemporaryDirectory() as work:
        for path, text in texts.items():
            place = Path(work, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        code = f"{line}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
        done = subprocess.run([sys.executable, "-S", "-c", code], cwd=work, capture_output=True, text=True)
    assume(done.returncode == 0)  # modules that need each other, `*` in a function
    return {*done.stdout.split()} & set(_OTHERS)


def test_thousands_of_modules_that_import_each_other_are_told_apart_in_time() -> None:
    count = 6000
    chain = {f"/s/p/m{n}.py": of_package(f"from . import m{n + 1}".encode()) for n in range(count)}
    asked = of_application("".join(f"import p.m{n}\n" for n in range(count)).encode())
    began = time.process_time()
    python = PythonTexts({"/s/p/__init__.py": of_package(b""), **chain, "/app/m.py": asked}, (), ["/s"])
    assert python.code()
    assert python.modules() == ()
    assert time.process_time() - began < 20
