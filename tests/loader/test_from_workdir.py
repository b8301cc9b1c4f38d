"""Commands that work in the image's WORKDIR alone: what real programs of PyPI do there and elsewhere, and what is said.

The image has the same files at the same paths as this machine has them for the test, so that both can be asked.
"""

import os
import subprocess
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.roots import find_roots
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder, Member, Symlink
from tests.tools import pip

PACKAGES = ("celery==5.4.0", "flask==3.1.0", "gunicorn==23.0.0", "uvicorn==0.34.0")
WEB = "import os\ndef application(environment, start): return []\n"
TEXTS = {
    "app.py": f"import flask\n{WEB}app = flask.Flask(__name__)\n",
    "serve.py": "import os\nos._exit(0)  # in place of a server that never ends\n",
    "tasks.py": "import celery\napp = celery.Celery('tasks')\n",
    "site_of/__init__.py": "import os\n",
    "site_of/wsgi.py": WEB,
    "site_of/__main__.py": "import os\n",
    "run.sh": "#!/bin/sh\nexec python app.py\n",
    "enter.sh": '#!/bin/sh\ncd "$(dirname "$0")" && exec python app.py\n',
    "sub/own.py": "import os\n",
    "config.py": "import os\n",
    "venv/tool.py": "import os\n",
    "gunicorn_there.py": "import os\nchdir = os.path.dirname(__file__)\n",
    "own_server.py": "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport app\n",
}
CASES: dict[str, tuple[str, ...]] = {
    "python app.py": ("app.py",),
    "python {W}/app.py": (),
    "python sub/own.py": ("sub/own.py",),
    "python -m app": ("app",),
    "python -m site_of": ("site_of",),
    "python -m flask --version": (),
    "gunicorn --check-config app:app": ("app:app",),
    "gunicorn --check-config site_of.wsgi": ("site_of.wsgi",),
    "python -m gunicorn --check-config app:app": ("app:app",),
    "gunicorn --check-config --chdir {W} app:app": (),
    "gunicorn --check-config --chdir={W} app:app": (),
    "gunicorn --check-config -c {W}/gunicorn_there.py app:app": (),
    "env GUNICORN_CMD_ARGS=--chdir={W} gunicorn --check-config app:app": (),
    "env PYTHONPATH={W} gunicorn --check-config app:app": (),
    "env -C {W} python app.py": (),
    "python {W}/app.py config.yaml": (),
    "python {W}/own_server.py app:app": (),
    "python -m venv --help": (),
    "gunicorn --check-config editable:application": (),
    "gunicorn --check-config installed:application": (),
    "flask --app app routes": ("app",),
    "celery -A tasks report": ("tasks",),
    "gunicorn --check-config --access-logfile sub/work app:app": ("app:app",),
    "uvicorn serve:app": ("serve:app",),
    "uvicorn --app-dir {W} serve:app": (),
    "sh run.sh": ("run.sh", "app.py"),
    "./run.sh": ("./run.sh", "app.py"),
    "{W}/run.sh": ("app.py",),
    "{W}/enter.sh": (),
}
LINES: dict[str, tuple[str, ...]] = {
    "python app.py": ("app.py",),
    "exec gunicorn --check-config app:app": ("app:app",),
    "cd {W} && python app.py": (),
    "if [ -f app.py ]; then python app.py; else python {W}/app.py; fi": (),
    "[ -f app.py ] || cd {W}; exec python app.py": (),
    "mkdir -p /tmp && python app.py": ("app.py",),
    "./run.sh": ("./run.sh", "app.py"),
}
"""The same as lines of a shell, as CMD without brackets has them."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the WORKDIR and a virtual environment with programs lie."""
    place = tmp_path_factory.mktemp("place")
    venv.create(place / "venv", with_pip=False, symlinks=True)
    (packages,) = (place / "venv/lib").glob("python*/site-packages")
    python = place / "venv/bin/python"
    pip("--python", python, "install", "--no-compile", *PACKAGES)
    (packages / "installed.py").write_text(WEB)
    (packages / "editable.pth").write_text(f"{place}/elsewhere\n")
    for name, text in (TEXTS | {"../elsewhere/editable.py": WEB}).items():
        file = place / "work" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    return place


@pytest.fixture(scope="module")
def members(place: Path) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for directory in ("venv/bin", "venv/lib", "work", "elsewhere"):
        for path in sorted(each for each in (place / directory).rglob("*") if each.is_file()):
            found[str(path)] = Symlink(str(path.readlink())) if path.is_symlink() else path
    programs = (place / "venv/bin/python", "/usr/bin/dirname", "/usr/bin/env", "/usr/bin/mkdir", "/usr/bin/dash")
    found |= {path: Path(path) for path in map(os.path.realpath, programs)}
    return found | {"/bin": Symlink("usr/bin"), "/usr/bin/sh": Symlink("dash")}


def told(members: Mapping[str, Member], place: Path, words: tuple[str, ...], tmp_path: Path) -> tuple[str, ...]:
    """What imgcheck says is found from WORKDIR alone, worked out anew and as a profile keeps it."""
    environment = (f"PATH={place}/venv/bin:/usr/bin:/bin",)
    image = ImageBuilder(command=words, environment=environment, working_directory=str(place / "work"))
    layout = image.layer(members, compression="none").write(tmp_path / "layout")
    with open_image(f"oci:{layout}") as opened:
        profile = build_profile(opened, SILENT)
    work = kept_work(with_loads(profile), ())
    assert work is not None
    assert work.roots.from_workdir == find_roots(profile).from_workdir
    return work.roots.from_workdir


def works(place: Path, words: tuple[str, ...], directory: Path) -> bool:
    environment = ["-i", f"PATH={place}/venv/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"]
    done = subprocess.run(["env", *environment, *words], cwd=directory, capture_output=True, timeout=60, check=False)
    return done.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", [*CASES, *(f"sh -c {line}" for line in LINES)])
def test_what_works_in_the_workdir_alone_is_told(
    command: str, place: Path, members: dict[str, Member], tmp_path: Path
) -> None:
    line = command.removeprefix("sh -c ").replace("{W}", f"{place}/work")
    words = ("/bin/sh", "-c", line) if command.startswith("sh -c ") else tuple(line.split())
    expected = LINES[command.removeprefix("sh -c ")] if command.startswith("sh -c ") else CASES[command]
    assert works(place, words, place / "work")
    assert works(place, words, tmp_path) == (not expected)
    assert told(members, place, words, tmp_path) == expected
