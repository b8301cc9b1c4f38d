"""Recorded failures of real sites, foreseen: every scenario, and the host on which it must not appear."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.seeds.recipes import build, libcuda, recipes
from tests.seeds.replay import Replay, Scenario, differences, scenarios
from tests.tools import need, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return Replay(tmp_path_factory.mktemp("seeds"))


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.id)
def test_outcome_that_really_happened_is_foreseen(scenario: Scenario, replay: Replay) -> None:
    assert differences(scenario, replay.report(scenario)) == []


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.id)
def test_outcome_differs_where_the_host_does(scenario: Scenario, replay: Replay) -> None:
    case = scenario.against_counter()
    assert differences(case, replay.report(case)) == []


def test_scenarios_cover_every_recorded_text() -> None:
    told = {scenario.id.split()[0] for scenario in scenarios()}
    assert told == {"1a", "1b", "1c", "1d", "1e", "1f", "2", "3", "4", "5"}


@pytest.mark.parametrize(
    ("image", "emulator", "cpu", "dies"),
    [
        ("cv-nccl90-tf-dev:1.12.0", "qemu-x86_64", "qemu64", False),
        ("cv-nccl92-tf-dev:broadwell_1.12.0", "qemu-x86_64", "IvyBridge", True),
        ("cv-nccl92-tf-dev:broadwell_1.12.0", "qemu-x86_64", "Broadwell", False),
        ("cv-nccl92-tf-dev:skylake512_1.12.0", "qemu-x86_64", "Broadwell", True),
        ("powerai/base:4.0.0", "qemu-ppc64le", "power8", False),
        ("powerai/base:4.0.0-power9", "qemu-ppc64le", "power8", True),
        ("powerai/base:4.0.0-power9", "qemu-ppc64le", "power9", False),
    ],
)
def test_images_of_the_scenarios_really_run_or_die(
    image: str, emulator: str, cpu: str, dies: bool, tmp_path: Path
) -> None:
    """The stand-ins hold what the scenarios say: an emulated CPU of that kind agrees."""
    built = build(recipes()[image])
    injected = tmp_path / "usr/local/nvidia/lib64/libcuda.so.1"
    injected.parent.mkdir(parents=True)
    injected.write_bytes(libcuda(recipes()[image]).read_bytes())
    for layer in built.layers:
        (tmp_path / "layer.tar").write_bytes(layer.tar)
        run("tar", "--extract", "--directory", tmp_path, "--file", tmp_path / "layer.tar")
    settings = [word for setting in built.environment for word in ("-E", setting)]
    command = [need(emulator), "-cpu", cpu, "-L", tmp_path, *settings, tmp_path / "usr/local/bin/train"]
    status = subprocess.run(command, capture_output=True).returncode
    assert status == (-signal.SIGILL if dies else 0)
