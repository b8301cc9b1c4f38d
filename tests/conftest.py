"""Fixtures that more than one part of the tests uses."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.apptainer import install_apptainer
from tests.peers import Peer, Registry, install_udocker, start_registry
from tests.tools import REQUIRED, cache_directory, need


def pytest_configure() -> None:
    """Peers run as another user, who has to read what tests make and keep; and a loaded machine is no failure."""
    os.umask(0o022)
    settings.register_profile("without deadlines", deadline=None)
    settings.load_profile("without deadlines")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be missing, a skipped test is a failed one, however it was skipped."""
    report = yield
    if report.skipped and REQUIRED and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and IMGCHECK_REQUIRE_TOOLS=1 allows no skips: {report.longreprtext}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's: fixtures that outlive a test share one store, and no width is set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("store")))
        # pip's would lie there too, and every installation would fetch everything again.
        patch.setenv("PIP_CACHE_DIR", str(cache_directory("pip")))
        # pytest-xdist sets it, and a user's shell may: text is as wide as where nobody says.
        patch.delenv("COLUMNS", raising=False)
        yield


@pytest.fixture(autouse=True)
def _store_of_the_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts without a store, so that what an earlier one left cannot answer for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("store")))


@pytest.fixture
def public_tmp() -> Iterator[Path]:
    """A directory that other users may enter and write: pytest's own tmp_path is closed to the peers' user."""
    directory = Path(tempfile.mkdtemp(prefix="test-", dir=cache_directory("tmp")))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """An open docker-registry for the whole session; every test pushes under a name of its own."""
    with start_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="session")
def apptainer_program() -> Path:
    return install_apptainer()


@pytest.fixture
def apptainer(apptainer_program: Path, public_tmp: Path) -> Peer:
    """Apptainer as an ordinary user: `apptainer("exec", tree, "/bin/true")`."""
    return Peer((str(apptainer_program),), _environment(public_tmp), public_tmp)


@pytest.fixture
def udocker(public_tmp: Path) -> Peer:
    """The udocker of PyPI as an ordinary user, with an empty repository at `udocker.home / "udocker"`."""
    settings = {
        "PYTHONPATH": str(install_udocker()),
        "UDOCKER_DIR": str(public_tmp / "udocker"),
        "UDOCKER_TARBALL": "",
        "UDOCKER_USE_PROOT_EXECUTABLE": need("proot"),
        "UDOCKER_USE_RUNC_EXECUTABLE": need("runc"),
    }
    # The interpreter of the tests may lie where an ordinary user cannot read it; Debian's own is everybody's.
    return Peer((need("python3"), "-m", "udocker.maincmd"), _environment(public_tmp) | settings, public_tmp)


def _environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "USER": "nobody", "LOGNAME": "nobody", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
