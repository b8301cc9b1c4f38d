"""What a report says leads to a file: the scripts that start programs, the texts that import, and who loads it."""

import pytest
from msgspec import structs

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from imgcheck.loader.ways import Ways
from tests.loader.builder import Root

SITE = "/usr/lib/python3.11/site-packages"
NATIVE = f"{SITE}/numpy/core.cpython-311-x86_64-linux-gnu.so"
BESIDE = "/app/near.cpython-311-x86_64-linux-gnu.so"
TEXTS = {
    f"{SITE}/pandas/__init__.py": "import numpy\n",
    f"{SITE}/seaborn/__init__.py": "import far\nimport pandas\n",
    f"{SITE}/far/__init__.py": "import numpy\n",
    f"{SITE}/numpy/__init__.py": "from . import core\n",
    "/app/train.py": "import seaborn, pandas\n",
    "/app/fast.py": "import near\n",
    "/usr/bin/work": "#!/usr/bin/env python3\nimport pandas\n",
    "/start.sh": '#!/bin/sh\nexec env A=1 /inner.sh "$@"\n',
    "/inner.sh": '#!/bin/sh\nexec "$@"\n',
    "/loop.sh": "#!/bin/sh\nif [ $A ]; then exec /loop.sh; fi\nexec /usr/bin/program\n",
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    root = Root(tmp_path_factory.mktemp("ways") / "root")
    for program in ("/usr/bin/python3.11", "/bin/sh", "/usr/bin/env", "/usr/bin/other"):
        root.program(program)
    root.library("/usr/lib/libblas.so.3")
    root.program("/usr/bin/program", needs=["/usr/lib/libblas.so.3"])
    root.link("/usr/bin/python3", "python3.11")
    root.write("/module.h", "void PyInit_near(void){}\nvoid PyInit_core(void){}\n")
    module = ["-x", "c", "-include", str(root.at("/module.h"))]
    root.library(BESIDE, flags=module)
    root.library(NATIVE, needs=["/usr/lib/libblas.so.3"], flags=module)
    for path, text in TEXTS.items():
        root.write(path, text)
        root.at(path).chmod(0o755)
    return root.profile()


def way(image: ImageProfile, path: str, *command: str) -> tuple[str, ...]:
    roots = find_roots(image, command)
    return Ways(roots, close(image, roots), image.tree).to(path)


@pytest.mark.parametrize(
    ("command", "path", "expected"),
    [
        (("program",), "/usr/bin/program", ()),
        (("program",), "/usr/lib/libblas.so.3", ("/usr/bin/program",)),
        (("program",), NATIVE, ()),
        (("/bin/sh",), NATIVE, ()),
        (("/start.sh", "program"), "/usr/bin/program", ("/start.sh", "env", "/inner.sh")),
        (("/start.sh", "program"), "/usr/lib/libblas.so.3", ("/start.sh", "env", "/inner.sh", "/usr/bin/program")),
        (("/loop.sh",), "/usr/bin/program", ("/loop.sh",)),
        (("python3", "/app/train.py"), NATIVE, ("/app/train.py", "pandas", "numpy")),
        (("python3", "/app/train.py"), "/usr/lib/libblas.so.3", ("/app/train.py", "pandas", "numpy", NATIVE)),
        (("python3", "/app/fast.py"), BESIDE, ("/app/fast.py", "near")),
        (("python3", "-c", "import pandas"), NATIVE, ("python -c", "pandas", "numpy")),
        (("python3", "-m", "pandas"), NATIVE, ("python -m", "pandas", "numpy")),
        (("/start.sh", "work"), NATIVE, ("/start.sh", "env", "/inner.sh", "/usr/bin/work", "pandas", "numpy")),
    ],
)
def test_each_step_names_the_next(
    image: ImageProfile, command: tuple[str, ...], path: str, expected: tuple[str, ...]
) -> None:
    assert way(image, path, *command) == expected


def test_a_profile_keeps_what_leads_to_its_files(image: ImageProfile) -> None:
    config = structs.replace(image.config, entrypoint=("/start.sh",), command=("work",))
    kept = kept_work(with_loads(structs.replace(image, config=config)), ())
    assert kept is not None
    assert kept.closure is not None
    assert Ways(kept.roots, kept.closure, image.tree).to(NATIVE) == way(image, NATIVE, "/start.sh", "work")
