"""Answers and probes that are kept: used where nothing changed, and never where something did."""

import errno
import os
import shutil

import pytest

from imgcheck.preflight import node, run
from imgcheck.preflight.place import private_directory
from tests.tools import CHECKOUT


@pytest.fixture
def worked_out(monkeypatch):
    """The names of the images for which an answer was worked out, not found."""
    seen = []
    real = run._outcome
    monkeypatch.setattr(run, "_outcome", lambda task, *rest: seen.append(task.reference) or real(task, *rest))
    return seen


@pytest.fixture
def probed(monkeypatch, tmp_path):
    """Grows with every probe of this node, whose programs and libraries nobody changes meanwhile."""
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setattr(node, "_LOADER_CACHE", str(tmp_path / "no-ld.so.cache"))
    from imgcheck.host import probe

    seen = []
    real = probe.probe_host
    monkeypatch.setattr(probe, "probe_host", lambda **options: seen.append(1) or real(**options))
    return seen


def test_the_second_task_of_a_node_reads_the_first_ones_answer(place, capsys, worked_out):
    arguments = (place.image(), "--host", place.host())
    assert place.preflight(*arguments) == place.preflight(*arguments) == 1
    first, second = capsys.readouterr().out.split("imgcheck: ")[1:]
    assert first == second
    assert len(worked_out) == 1


def test_a_new_profile_is_a_new_question(place, worked_out):
    image, host = place.image(), place.host()
    assert place.preflight(image, "--host", host) == 1
    profile = place.directory / "app.sif.imgcheck.json"
    before = profile.stat()
    place.profile(profile.name, answer="dispatched")
    os.utime(profile, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert place.preflight(image, "--host", host) == 0
    assert len(worked_out) == 2


def test_a_change_of_a_sites_rules_behind_a_link_counts(place):
    site, elsewhere = place.directory / "site", place.directory / "schedulers of all sites"
    site.mkdir()
    elsewhere.mkdir()
    (site / "schedulers").symlink_to(elsewhere)
    text = (CHECKOUT / "rules/schedulers/sge.toml").read_text()
    (elsewhere / "sge.toml").write_text(text)
    arguments = (place.image(), "--host", place.host(), "--scheduler", "sge", "--rules", site)
    assert place.preflight(*arguments) == 100
    (elsewhere / "sge.toml").write_text(text.replace("exit = 100", "exit = 77"))
    assert place.preflight(*arguments) == 77


def test_a_profile_that_appears_is_used(place):
    image = place.image()
    hidden = place.directory / "hidden"
    (place.directory / "app.sif.imgcheck.json").rename(hidden)
    arguments = (image, "--host", place.host(), "--on-missing", "pass")
    assert place.preflight(*arguments) == 0
    hidden.rename(place.directory / "app.sif.imgcheck.json")
    assert place.preflight(*arguments) == 1


def test_another_host_file_is_another_host(place):
    image, host = place.image(), place.host()
    assert place.preflight(image, "--host", host) == 1
    shutil.copy(place.host("skylake_avx512"), host)
    assert place.preflight(image, "--host", host) == 0


def test_the_node_is_probed_once_a_boot(place, probed, monkeypatch, tmp_path):
    image = place.image()
    place.preflight(image)
    place.preflight(image, "--scheduler", "sge")
    assert len(probed) == 1
    boot = tmp_path / "boot_id"
    boot.write_text("another boot\n")
    monkeypatch.setattr(node, "_BOOT", str(boot))
    place.preflight(image)
    assert len(probed) == 2


@pytest.mark.parametrize("changed", ["driver", "devices", "libraries", "programs", "allocation", "allocation of AMD's"])
def test_a_change_of_the_node_is_probed(place, probed, monkeypatch, tmp_path, changed):
    driver, cache, programs = tmp_path / "version", tmp_path / "ld.so.cache", tmp_path / "bin"
    fabric = tmp_path / "infiniband"
    programs.mkdir()
    fabric.mkdir()
    monkeypatch.setattr(node, "_DRIVER", (str(driver),))
    monkeypatch.setattr(node, "_LOADER_CACHE", str(cache))
    monkeypatch.setattr(node, "_DEVICES", (str(fabric),))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    image = place.image()
    place.preflight(image)
    place.preflight(image)
    assert len(probed) == 1
    match changed:
        case "driver":
            driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08\n")
        case "devices":
            (fabric / "mlx5_0").mkdir()
        case "libraries":
            cache.write_bytes(b"")
        case "programs":
            (programs / "apptainer").write_text("")
        case "allocation":
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        case "allocation of AMD's":
            monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3")
    place.preflight(image)
    assert len(probed) == 2


def test_a_probe_to_which_something_did_not_answer_in_time_is_not_kept(
    place, probed, worked_out, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr("imgcheck.host.runtimes._TIME_LIMIT", 0.2)
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "docker"
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    image = place.image()
    for job in ("1", "2"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        place.preflight(image)
        assert f"note: {program} did not answer in time" in capsys.readouterr().out
        place.preflight(image)
    assert len(probed) == len(worked_out) == 2


def test_what_could_not_be_checked_is_asked_again_by_the_next_job(place, monkeypatch, worked_out):
    missing = place.directory / "missing.sif"
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert place.preflight(missing) == place.preflight(missing) == 2
    assert len(worked_out) == 1
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    place.preflight(missing)
    assert len(worked_out) == 2


def test_outside_of_a_job_trouble_is_not_kept(place, worked_out):
    missing = place.directory / "missing.sif"
    place.preflight(missing)
    place.preflight(missing)
    assert len(worked_out) == 2


@pytest.mark.parametrize("damage", [b"", b"imgcheck answer 1\0", b"\xff\0" * 20])
def test_a_damaged_answer_is_made_again(place, worked_out, damage):
    arguments = (place.image(), "--host", place.host())
    place.preflight(*arguments)
    (answer,) = place.answers()
    whole = answer.read_bytes()
    for data in (damage, whole[:-2], whole.replace(b"\0" + b"1\0", b"\0one\0", 1)):
        answer.write_bytes(data)
        assert place.preflight(*arguments) == 1
    assert len(worked_out) == 4


@pytest.mark.parametrize("folder", ["locks", "answers", "hosts"])
def test_where_nothing_can_be_kept_every_task_works_for_itself(place, folder):
    place.cache.mkdir(0o700)
    (place.cache / folder).write_text("")
    assert place.preflight(place.image(), "--host", place.host()) == 1
    assert place.preflight(place.image(), "--scheduler", "slurm-task", "--host", place.host()) == 42


def test_a_file_system_without_locks_costs_no_verdict(place, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert place.preflight(place.image(), "--scheduler", "slurm-task", "--host", place.host()) == 42


def test_an_answer_that_others_may_write_is_not_believed(place, worked_out):
    arguments = (place.image(), "--host", place.host())
    place.preflight(*arguments)
    (answer,) = place.answers()
    answer.chmod(0o666)
    place.preflight(*arguments)
    assert len(worked_out) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_an_answer_of_another_user_is_not_believed(place, worked_out):
    arguments = (place.image(), "--host", place.host())
    place.preflight(*arguments)
    (answer,) = place.answers()
    os.chown(answer, 65534, 65534)
    place.preflight(*arguments)
    assert len(worked_out) == 2


def test_a_directory_that_others_may_enter_is_not_used(place):
    place.cache.mkdir(mode=0o777)
    place.cache.chmod(0o777)
    assert private_directory(str(place.cache)) == ""
    assert place.preflight(place.image(), "--host", place.host()) == 1
    assert not list(place.cache.iterdir())


def test_a_link_in_place_of_the_directory_is_not_followed(place, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.cache.symlink_to(tmp_path / "elsewhere")
    assert place.preflight(place.image(), "--host", place.host()) == 1
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_runtime_directory_is_preferred_where_it_is_private(tmp_path, monkeypatch):
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert private_directory() == f"{tmp_path}/imgcheck"
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{tmp_path}/of-the-login-node")
    assert private_directory() == f"/tmp/imgcheck-{os.geteuid()}"


def test_a_full_disk_costs_nothing_but_time(place, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("imgcheck.preflight.kept.write_private", full)
    arguments = (place.image(), "--host", place.host())
    assert place.preflight(*arguments) == place.preflight(*arguments) == 1


def test_old_answers_go_within_a_day(place):
    host = place.host()
    place.preflight(place.image("old.sif"), "--host", host)
    (old,) = place.answers()
    os.utime(old, (0, 0))
    place.preflight(place.image("new.sif"), "--host", host)
    assert old in place.answers()
    os.utime(place.cache / "swept", (0, 0))
    # What else lies there keeps nothing from going.
    (place.cache / "answers/a-directory").mkdir()
    os.utime(place.cache / "answers/a-directory", (0, 0))
    place.preflight(place.image("newer.sif"), "--host", host)
    (place.cache / "answers/a-directory").rmdir()
    assert old not in place.answers()
    assert len(place.answers()) == 2
