"""Scripts that only their owner may read: what is said of them to another user, and what is said before."""

import os
import subprocess
from pathlib import Path

import pytest

from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.roots import find_roots
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
from tests.images import File, ImageBuilder, Symlink

PYTHON = os.path.realpath("/usr/bin/python3")
TEXTS = {
    "app.py": "import lib, package.part\ntry:\n    import extra\nexcept OSError:\n    pass\n",
    "lib.py": "import os\n",
    "extra.py": "import os\n",
    "other.py": "import os\n",
    "package/__init__.py": "import os\n",
    "package/part.py": "import os\n",
    "careful.py": "def never():\n    import other\n",
    "run.sh": "exec python3 app.py\n",
    "careful.sh": "if [ -r other.py ]; then python3 other.py; fi\nexec python3 app.py\n",
}
OTHER_USER = ("--reuid=65534", "--regid=65534", "--clear-groups")
CASES = {
    ("python3 app.py", "app.py"): True,
    ("python3 app.py", "extra.py"): False,
    ("python3 app.py", "other.py"): False,
    ("python3 lib.py", "app.py"): False,
    ("python3 careful.py", "other.py"): False,
    ("sh run.sh", "run.sh"): True,
    ("sh run.sh", "app.py"): True,
    ("sh run.sh", "other.py"): False,
    ("sh careful.sh", "other.py"): False,
}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("command", "closed"), CASES)
def test_what_another_user_may_not_read_is_told(command: str, closed: str, public_tmp: Path, tmp_path: Path) -> None:
    for name, text in TEXTS.items():
        file = public_tmp / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o600 if name == closed else 0o644)
    words = command.split()
    done = subprocess.run(
        ["env", "PATH=/usr/bin", "setpriv", *OTHER_USER, *words], cwd=public_tmp, capture_output=True, text=True
    )
    assert (done.returncode != 0) == ("ermission denied" in done.stderr) == CASES[command, closed], done.stderr
    members = {f"app/{name}": File(text.encode(), 0o600 if name == closed else 0o644) for name, text in TEXTS.items()}
    programs = {PYTHON: Path(PYTHON), "/usr/bin/dash": Path("/usr/bin/dash")}
    links = {"/usr/bin/python3": Symlink(PYTHON), "/usr/bin/sh": Symlink("dash")}
    image = ImageBuilder(command=tuple(words), environment=("PATH=/usr/bin",), working_directory="/app")
    with open_image(f"oci:{image.layer({**members, **programs, **links}).write(tmp_path / 'layout')}") as opened:
        profile = build_profile(opened, SILENT)
    expected = (f"/app/{closed}",) if CASES[command, closed] else ()
    assert find_roots(profile).closed == expected
    kept = kept_work(with_loads(profile), ())
    assert kept is not None and kept.roots.closed == expected
