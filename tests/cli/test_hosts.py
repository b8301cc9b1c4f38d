"""`imgcheck hosts`: what it reads, and what it leaves in the directory of the kinds."""

import os
from pathlib import Path

import msgspec
import pytest

from imgcheck.cli import main
from imgcheck.documents import encode
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge

HOST = describe_host(Knowledge(), cpu="haswell", kernel="4.18")


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Profiles of three nodes of three kinds."""
    directory = tmp_path / "nodes"
    directory.mkdir()
    for number, cpu in enumerate(("haswell", "broadwell", "zen3"), 1):
        host = msgspec.structs.replace(describe_host(Knowledge(), cpu=cpu), name=f"n{number}")
        (directory / f"n{number}.json").write_bytes(encode(host))
    return directory


def _hosts(nodes: Path, kinds: Path) -> int:
    return main(["hosts", str(nodes), "--write", str(kinds)])


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_kinds_that_are_no_more_are_removed_and_named(nodes, tmp_path, capsys):
    kinds = tmp_path / "kinds"
    assert _hosts(nodes, kinds) == 0
    assert _names(kinds) == ["kind1.json", "kind2.json", "kind3.json"]
    assert capsys.readouterr().err == ""
    for name in ("n1.json", "n2.json"):
        (nodes / name).unlink()
    assert _hosts(nodes, kinds) == 0
    assert _names(kinds) == ["kind1.json"]
    said = capsys.readouterr().err
    assert f"imgcheck: note: {kinds / 'kind2.json'} is of an earlier run and was removed" in said
    assert "kind3.json" in said


def test_files_that_are_not_its_own_stay(nodes, tmp_path):
    kinds = tmp_path / "kinds"
    kinds.mkdir()
    (kinds / "kind9.json").write_text("{}")
    (kinds / "kind8.json").symlink_to(nodes / "n1.json")
    (kinds / "kind07.json").write_bytes(encode(HOST))
    (kinds / "kind7.json.old").write_bytes(encode(HOST))
    os.mkfifo(kinds / "kind6.json")
    before = _names(kinds)
    assert _hosts(nodes, kinds) == 0
    assert set(before) < set(_names(kinds))


def test_kinds_stay_as_they_are_where_one_cannot_be_written(nodes, tmp_path, monkeypatch, capsys):
    kinds = tmp_path / "kinds"
    assert _hosts(nodes, kinds) == 0
    before = {path.name: path.read_bytes() for path in kinds.iterdir()}
    (nodes / "n1.json").unlink()
    synced = os.fsync
    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        synced(handle)

    monkeypatch.setattr("os.fsync", full)
    assert _hosts(nodes, kinds) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in kinds.iterdir()} == before


def test_kinds_are_not_written_among_the_nodes(nodes, capsys):
    assert _hosts(nodes, nodes.parent / "nodes/../nodes") == 2
    assert "the directory that is read" in capsys.readouterr().err
    assert _names(nodes) == ["n1.json", "n2.json", "n3.json"]


def test_what_is_no_regular_file_is_left_out_and_named(nodes, capsys):
    os.mkfifo(nodes / "a.json")
    (nodes / "b.json").mkdir()
    assert main(["hosts", str(nodes)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("3 nodes: 3 kinds\n")
    for name in ("a.json", "b.json"):
        assert f"imgcheck: note: {nodes / name} is no regular file and is left out" in said.err


def _named(directory: Path, nodes: str, capsys) -> tuple[int, list[str], str]:
    status = main(["hosts", str(directory), "--nodes", nodes])
    said = capsys.readouterr()
    return status, said.out.splitlines(), said.err


def test_a_node_is_described_by_the_file_called_after_it(nodes, capsys):
    assert _named(nodes, "n[2-3]", capsys) == (0, [f"{nodes}/n2.json", f"{nodes}/n3.json"], "")


def test_nodes_are_described_by_the_kind_that_names_them(nodes, tmp_path, capsys):
    for name in ("n4", "n5.cluster.example"):
        host = msgspec.structs.replace(describe_host(Knowledge(), cpu="haswell"), name=name)
        (nodes / f"{name}.json").write_bytes(encode(host))
    kinds = tmp_path / "kinds"
    assert _hosts(nodes, kinds) == 0
    capsys.readouterr()
    assert _named(kinds, "n[1,4-5]", capsys) == (0, [f"{kinds}/kind1.json"], "")
    assert _named(kinds, "n2,n4", capsys) == (0, [f"{kinds}/kind1.json", f"{kinds}/kind2.json"], "")


def test_files_of_equal_nodes_are_named_once(nodes, capsys):
    (nodes / "n9.json").write_bytes((nodes / "n1.json").read_bytes())
    status, files, _ = _named(nodes, "n[1,9]", capsys)
    assert (status, len(files)) == (0, 1)


def test_other_files_are_not_read_where_each_node_has_its_own(nodes, capsys):
    (nodes / "other.json").write_text("broken")
    assert _named(nodes, "n1", capsys)[0] == 0
    assert "other.json" in _named(nodes, "n7", capsys)[2]


def test_nodes_without_a_file_are_named(nodes, capsys):
    status, files, said = _named(nodes, "n[1,7-8]", capsys)
    assert (status, files) == (0, [f"{nodes}/n1.json"])
    assert said == f"imgcheck: note: no file in {nodes} describes n[7-8]\n"
    status, files, said = _named(nodes, "n[7-8]", capsys)
    assert (status, files) == (2, [])
    assert said.startswith(f"imgcheck: {nodes}: no file describes n[7-8]\n")
    assert "imgcheck probe -o" in said


def test_more_nodes_than_any_cluster_has_are_refused(nodes, capsys):
    assert main(["hosts", str(nodes), "--nodes", "n[1-99999999999]"]) == 2
    assert "more nodes than any cluster has" in capsys.readouterr().err


def test_a_format_is_refused_where_names_of_files_alone_are_printed(nodes, capsys):
    assert main(["hosts", str(nodes), "--nodes", "n1", "-o", "json"]) == 2
    assert "-o json: --nodes prints names of files alone" in capsys.readouterr().err


def test_a_host_that_claims_a_vast_name_is_one_host(nodes, capsys):
    vast = msgspec.structs.replace(HOST, name="m[1-99999999999]")
    (nodes / "a.json").write_bytes(encode(vast))
    assert main(["hosts", str(nodes), "--nodes", "n1,n7"]) == 0
    assert capsys.readouterr().out == f"{nodes}/n1.json\n"
