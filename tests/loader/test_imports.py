"""Which packages a Python script imports: those that its texts name, and all where that cannot be told."""

import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from msgspec import structs

from imgcheck.documents.image import ImageConfig, ImageProfile
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from tests.loader.builder import Root
from tests.tools import run

SITE = "/usr/lib/python3.11/site-packages"
TEXTS = {
    f"{SITE}/alpha/__init__.py": "from ._native import run\nfrom gamma import more\n",
    f"{SITE}/beta/__init__.py": "from . import _native\n",
    f"{SITE}/gamma/__init__.py": "try:\n    import delta.deep as deep, os\nexcept ImportError:\n    pass\n",
    f"{SITE}/gamma/late.py": "def late():\n    import beta\nclass C:\n    def f(self):\n        import beta\n",
    f"{SITE}/gamma/examples/first.py": "import beta\n",
    f"{SITE}/gamma/tests/test_all.py": "import beta\n",
    f"{SITE}/delta/__init__.py": "",
    f"{SITE}/delta/test_deep.py": "import single\n",
    f"{SITE}/delta/deep_benchmark.py": "import single\n",
    f"{SITE}/requiring/__init__.py": "",
    f"{SITE}/Requiring-1.0.dist-info/METADATA": "Name: Requiring\nRequires-Dist: Beta.Project (>=1)\n"
    "Requires-Dist: alpha; extra == 'more'\n\nRequires-Dist: delta\n",
    f"{SITE}/beta_project-2.0.dist-info/METADATA": "Name: beta-project\n",
    f"{SITE}/beta_project-2.0.dist-info/top_level.txt": "beta\n",
    f"{SITE}/asking/__init__.py": "import importlib.metadata\nALL = importlib.metadata.entry_points()\n",
    f"{SITE}/single-1.0.dist-info/METADATA": "Name: single\n",
    f"{SITE}/single-1.0.dist-info/entry_points.txt": "[console_scripts]\na=alpha:main\n[asking.x]\ns = single:start\n",
    f"{SITE}/unrecorded/__init__.py": "",
    f"{SITE}/Unnamed/__init__.py": "",
    f"{SITE}/unnamed-1.0.dist-info/METADATA": "Name: unnamed\nRequires-Dist: delta\n",
    f"{SITE}/space/inside/core.py": "",
    f"{SITE}/inside-1.0.dist-info/METADATA": "Name: inside\nRequires-Dist: single\n",
    "/app/one.py": "import alpha\n",
    "/app/other.py": "import beta\n",
    "/app/local.py": "import helper\n",
    "/app/helper.py": "if True: import beta as b\n",
    "/srv/first.py": "import helper\n",
    "/srv/helper.py": "import alpha\n",
    "/app/loads.py": "import importlib\nimportlib.import_module(name)\nimportlib.import_module('single')\n",
    "/app/evaluates.py": "import alpha\nmodel.eval()\n",
    "/app/adds.py": "import sys, alpha\nsys.path.insert(0, '/x')\n",
    "/app/fast.py": "import near\n",
    "/app/gone.py": "import nowhere, alpha\n",
    "/app/installed.py": "import editable\n",
    "/app/manage.py": "os.environ['SETTINGS'] = 'project.settings'\nfrom gamma import start\n",
    "/app/project/settings.py": "APPS = [\"single\", 'project.shop']\n",
    "/app/project/shop.py": "from alpha.models import Model\n",
    "/src/editable/__init__.py": "import beta\n",
    "/usr/bin/serve": "#!/usr/bin/python3.11\nfrom gamma.main import main\n",
    "/usr/bin/alpha": "#!/usr/bin/python3.11\nfrom alpha.main import main\n",
    "/opt/long/bin/both": """#!/bin/sh
'''exec' "/usr/bin/python3.11" "$0" "$@"
' '''
import single
""",
    "/usr/lib/python3.11/json/__init__.py": "import beta\n",
    "/own/kit/__init__.py": "",
    "/own/kit/cpu.py": "import os\n",
    "/own/kit/gpu.py": "import beta\n",
    "/own/kit/sub/__init__.py": "",
    "/own/kit/sub/deep.py": "from .. import gpu\nimport single\n",
    "/own/parts/a.py": "import alpha\n",
    "/own/parts/b.py": "import beta\n",
    "/own/cpu.py": "import kit.cpu\n",
    "/own/gpu.py": "from kit import gpu\n",
    "/own/deep.py": "import kit.sub.deep as deep\n",
    "/own/whole.py": "import kit\n",
    "/own/part.py": "from parts import a\n",
    "/own/suppress.py": "import contextlib\nwith contextlib.suppress(ImportError):\n    import beta\n",
    "/own/nested.py": "def main():\n    try:\n        import beta\n    except ImportError:\n        import single\n"
    "    for x in (\n1, 2):\n        pass\n    import alpha\n\n\nmain()\n",
}
NEAR = "/app/near.cpython-311-x86_64-linux-gnu.so"
RECORDED = ("alpha", "delta")
TEXTS |= {f"{SITE}/{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\n" for name in RECORDED}
NATIVES = ("alpha/_native", "beta/_native", "delta/deep", "single", "unrecorded/core", "space/inside/core")
ALL = {"alpha", "beta", "delta", "single", "unrecorded", "space"}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    root = Root(tmp_path_factory.mktemp("imports") / "root")
    for program in ("/usr/bin/python3.11", "/bin/sh"):
        root.program(program)
    root.link("/usr/bin/python3", "python3.11")
    for name in NATIVES:
        root.library(f"{SITE}/{name}.cpython-311-x86_64-linux-gnu.so")
    root.write("/module.h", "void PyInit_near(void){}\n")
    root.library(NEAR, flags=["-x", "c", "-include", str(root.at("/module.h"))])
    for path, text in TEXTS.items():
        root.write(path, text)
    for program in ("/usr/bin/serve", "/usr/bin/alpha", "/opt/long/bin/both"):
        root.at(program).chmod(0o755)
    return root.profile()


@pytest.mark.parametrize(
    ("command", "reached"),
    [
        (("serve", "fast:app"), {NEAR}),
        (("python3", "/usr/bin/serve", "other:app"), set()),
        (("python3", "/srv/first.py"), set()),
    ],
)
def test_programs_of_packages_run_applications_from_where_they_start(
    image: ImageProfile, command: tuple[str, ...], reached: set[str]
) -> None:
    found = find_roots(structs.replace(image, config=ImageConfig(working_directory="/app")), command)
    assert {path for path in found.imports if path.startswith("/app/") and path not in found.perhaps} == reached


@pytest.mark.parametrize(
    ("line", "reach"), [("/src", "import"), ("../../../../src\n", "import"), ("#/src", "unreached"), ("/", "unreached")]
)
def test_an_editable_installation_is_found_by_its_path_file(tmp_path: Path, line: str, reach: str) -> None:
    root = editable_root(tmp_path)
    root.write(f"{SITE}/__editable__.editable-1.0.pth", f"import sys; sys.exit\n\n{line}")
    assert reach_of_editable(root) == reach


def editable_root(tmp_path: Path) -> Root:
    """A Python, a package in /src with a compiled module, and a program that imports it."""
    root = Root(tmp_path / "root")
    root.program("/usr/bin/python3.11")
    root.write("/module.h", "void PyInit_core(void){}\n")
    root.library("/src/editable/core.so", flags=["-x", "c", "-include", str(root.at("/module.h"))])
    root.write("/src/editable/__init__.py", "from . import core\n")
    root.write("/app/run.py", "import editable\n")
    return root


def reach_of_editable(root: Root) -> str:
    image = root.profile()
    return close(image, find_roots(image, ("python3.11", "/app/run.py"))).reach("/src/editable/core.so")


def test_an_editable_installation_is_found_by_the_finder_that_setuptools_writes(tmp_path: Path) -> None:
    root = editable_root(tmp_path)
    root.write("/src/setup.py", "from setuptools import setup\nsetup(name='editable', packages=['editable'])\n")
    root.write("/src/other.py", "")  # beside it lies what is not installed
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    builder = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    run(sys.executable, "-c", builder, wheels, cwd=root.at("/src"))
    [wheel] = wheels.iterdir()
    with ZipFile(wheel) as archive:
        archive.extractall(root.at(SITE))
    [finder] = root.at(SITE).glob("__editable___*_finder.py")
    finder.write_text(finder.read_text().replace(str(root.path), ""))
    assert reach_of_editable(root) == "import"
    for mapping in ("{'editable': '/src/gone'}", "{'editable': ['/src/editable']}", "{" + "[" * 9999, "{'\0'}", "{}"):
        finder.write_text(f"MAPPING: dict[str, str] = {mapping}\n")
        assert reach_of_editable(root) == "unreached"


@pytest.mark.parametrize(
    ("place", "reach"),
    [
        ("/usr/lib/python3/dist-packages", "import"),
        ("/usr/lib64/python3.11/site-packages", "import"),
        ("/usr/local/lib/python3.11/dist-packages", "import"),
        ("/root/.local/lib/python3.11/site-packages", "import"),
        ("/opt/told/lib/python3.11/site-packages", "import"),
        ("/opt/tool/lib/python3.11/site-packages", "path"),
        ("/opt/tool/lib/python/dist-packages", "path"),
    ],
)
def test_packages_where_no_python_looks_by_itself_are_a_risk(tmp_path: Path, place: str, reach: str) -> None:
    root = Root(tmp_path / "root")
    for program in ("/usr/bin/env", "/usr/bin/python3.11"):
        root.program(program)
    root.library(f"{place}/tool/_native.cpython-311-x86_64-linux-gnu.so")
    root.write(f"{place}/tool/__init__.py", "from . import _native\n")
    root.write("/app/run.py", "import tool\n")
    image = root.profile()
    command = ("env", "PYTHONPATH=/opt/told/lib/python3.11/site-packages", "python3.11", "/app/run.py")
    closure = close(image, find_roots(image, command))
    assert closure.reach(f"{place}/tool/_native.cpython-311-x86_64-linux-gnu.so") == reach


def reached(image: ImageProfile, reach: str, *command: str) -> set[str]:
    """The packages of which a start by `command` reaches the extension modules so."""
    closure = close(image, find_roots(image, command))
    found = (path for path in closure.reaches if path.startswith(SITE) and closure.reach(path) == reach)
    return {path.removeprefix(f"{SITE}/").split("/")[0].split(".")[0] for path in found}


def imported(image: ImageProfile, *command: str) -> set[str]:
    """Those that are certainly imported."""
    return reached(image, "import", *command)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("python3", "/app/one.py"), {"alpha"}),
        (("python3", "-u", "-X", "dev", "-Wonce", "/app/other.py"), {"beta"}),
        (("sh", "-ec", "python3 /srv/first.py; python3 /app/local.py"), {"alpha"}),
        (("python3", "/app/local.py"), set()),
        (("python3", "/app/gone.py"), {"alpha"}),
        (("python3", "/app/evaluates.py"), {"alpha"}),
        (("python3", "/app/adds.py"), {"alpha"}),
        (("python3", "/app/loads.py"), {"single"}),
        (("python3", "-c", "import single; exec(open('/mounted/x').read())"), {"single"}),
        (("python3", "/app/installed.py"), {"beta"}),
        (("python3", "-c", "import gamma; import single"), {"single"}),
        (("sh", "-c", "cd /app && exec python3 -m local"), set()),
        (("python3", "/app/manage.py", "runserver"), {"alpha"}),
        (("sh", "-c", 'cd "$WHERE"; exec python3 manage.py runserver'), {"alpha"}),
        (("sh", "-c", "if [ -e /x ]; then cd /srv; else cd /app; fi; exec python3 manage.py"), {"alpha"}),
        (("serve", "/app/other.py"), {"beta"}),
        (("python3", "/usr/bin/serve", "--app=/app/other.py"), {"beta"}),
        (("sh", "-c", "cd /app; serve other:app"), {"beta"}),
        (("python3", "-m", "gamma"), set()),
        (("alpha", "--version"), {"alpha"}),
        (("/opt/long/bin/both", "--version"), {"single"}),
        (("serve", "/mounted/app.py"), set()),
        (("python3", "/own/cpu.py"), set()),
        (("python3", "/own/gpu.py"), {"beta"}),
        (("python3", "/own/deep.py"), {"beta", "single"}),
        (("python3", "/own/whole.py"), set()),
        (("sh", "-c", "cd /own && exec python3 -m kit.gpu"), {"beta"}),
        (("sh", "-c", "cd /own && exec python3 -m kit.cpu"), set()),
        (("python3", "/own/part.py"), {"alpha"}),
        (("python3", "/own/suppress.py"), set()),
        (("python3", "/own/nested.py"), {"alpha"}),
        (("python3", "--version"), set()),
    ],
)
def test_a_script_imports_what_its_texts_name(image: ImageProfile, command: tuple[str, ...], names: set[str]) -> None:
    assert imported(image, *command) == names


@pytest.mark.parametrize(
    "command",
    [
        ("python3",),
        ("python3", "-"),
        ("python3", "/mounted/train.py"),
    ],
)
def test_where_that_cannot_be_told_it_may_import_every_package(image: ImageProfile, command: tuple[str, ...]) -> None:
    assert imported(image, *command) == ALL


@pytest.mark.parametrize(
    ("command", "perhaps"),
    [
        (("python3", "/app/one.py"), {"beta", "delta"}),  # behind `try`, and in a function of what is imported
        (("python3", "/app/local.py"), {"beta"}),
        (("python3", "/app/manage.py"), {"beta", "delta", "single"}),
        (("python3", "-c", "import single"), set()),
        (("python3", "-c", "import requiring"), {"beta"}),
        (("python3", "-c", "import Unnamed"), {"delta"}),
        (("python3", "-c", "import space.inside"), {"single"}),
        (("python3", "-c", "import asking"), {"single"}),
        (("python3", "-c", "import unrecorded"), {"single"}),
        (("python3", "/app/loads.py"), ALL - {"single"}),
        (("python3", "/app/adds.py"), ALL - {"alpha"}),
        (("python3", "-m", "gamma"), ALL),
        (("serve", "/mounted/app.py"), ALL),
        (("serve", "--help"), {"beta", "delta"}),
        (("python3", "-m", "gamma", "--version"), {"beta", "delta"}),
        (("python3", "-VV"), set()),
        (("python3", "/own/whole.py"), {"beta", "single"}),
        (("python3", "/own/suppress.py"), {"beta"}),
    ],
)
def test_what_is_perhaps_imported_is_a_risk(image: ImageProfile, command: tuple[str, ...], perhaps: set[str]) -> None:
    assert reached(image, "path", *command) == perhaps


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("python3 /app/one.py || true; exec sleep 9", set()),
        ('if [ "$X" ]; then python3 /app/one.py; fi; sleep 9', set()),
        ("python3 /srv/first.py; exec python3 /app/local.py", set()),
        ('if [ "$X" ]; then exec python3 /app/one.py; else exec python3 /app/other.py; fi', {"beta"}),
        ("if [ -e /x ]; then exec python3 /app/one.py; else exec python3 /app/other.py; fi", set()),
        ("if [ -e /x ]; then exec python3 /app/one.py; else exec python3 /app/manage.py; fi", {"alpha"}),
        ("if [ -e /x ]; then exec python3 /app/one.py; else exec python3 /mounted/a.py; fi", {"alpha"}),
        ("python3 /mounted/check.py; exec python3 /app/one.py", {"alpha"}),
        ("if [ -e /x ]; then exec python3 /mounted/b.py; else exec python3 /mounted/a.py; fi", ALL),
    ],
)
def test_what_a_python_imports_that_runs_on_a_condition_is_a_risk(
    image: ImageProfile, line: str, names: set[str]
) -> None:
    assert imported(image, "sh", "-c", line) == names


@pytest.mark.parametrize(("script", "reach"), [("fast", "import"), ("one", "unreached"), ("adds", "path")])
def test_an_extension_module_beside_the_script_is_named_like_others(
    image: ImageProfile, script: str, reach: str
) -> None:
    assert close(image, find_roots(image, ("python3", f"/app/{script}.py"))).reach(NEAR) == reach
