"""Data of a site: what nothing reads is refused, and the examples of docs/site-rules.md work."""

import re
from pathlib import Path

import pytest

from imgcheck.check.every_table import read_all
from imgcheck.cli import main
from imgcheck.errors import KnowledgeError
from imgcheck.knowledge import Knowledge, cpus, gpus
from imgcheck.knowledge.cuda import driver_cuda
from tests.tools import CHECKOUT

PAGE = (CHECKOUT / "docs/site-rules.md").read_text()
PRODUCT = '[[product]]\nid = "X9"\ncapability = "9.0"\nsources = ["https://example.org"]\n'
RULE = (
    '[[rule]]\nid = "{}"\ntitle = "{}"\npredicted_error = "e"\nwhy = "w"\nremedy = "r"\n'
    'sources = ["https://example.org"]\n'
)


def _site(directory: Path, name: str, text: str) -> Knowledge:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Knowledge((directory,))


@pytest.mark.parametrize(
    ("name", "text", "said", "hint"),
    [
        ("analysis/isa.toml", "x86 = 1", "analysis/isa.toml: nothing is read from there", "tables/gpus/*.toml"),
        ("tables/gpu/site.toml", PRODUCT, "tables/gpu/site.toml: nothing is read", "tables/gpus/*.toml"),
        ("tables/registry.toml", "x = 1", "tables/registry.toml: nothing is read", "tables/registries.toml"),
        ("tables/registries.toml", "x = 1", "registries.toml: nothing reads `x`", "holds short_names"),
        ("tables/pci/site.toml", "x = 1", "tables/pci/site.toml: nothing is read", "tables/pci/nvidia.toml"),
        ("mpi/site.toml", "x = 1", "mpi/site.toml: nothing is read", "mpi/mpi.toml"),
        ("tables/gpus/site.toml", PRODUCT.replace("product", "gpu"), "nothing reads `gpu`", "holds generic, product"),
        ("cpus/site.toml", "[[gpu]]\nid = 'x'", "nothing reads `gpu`", "product"),
        ("catalogue/site.toml", RULE.format("SITE001", "t"), "SITE001: no check makes such a finding", "reword"),
        ("catalogue/site.toml", RULE.format("RUN005", "{foo}"), "RUN005: nothing fills {foo}", "its checks know"),
        ("catalogue/site.toml", RULE.format("IMG002", "t"), "IMG002: variants lacks absent-by", "copy"),
        ("tables/gpus/site.toml", PRODUCT.replace('"9.0"', "9.0"), "Expected `str`", 'in quotes: capability = "9.0"'),
        ("tables/gpus/site.toml", PRODUCT.replace("capab", "abili"), "X9: Object", ""),
        ("tables/gpus/site.toml", "[[product]]\nid = 'X9'", "required field `capability`", "replaces the whole one"),
        ("tables/gpus/site.toml", PRODUCT.replace("9.0", "99.0"), "no compute capability 99.0", ""),
        ("cpus/site.toml", "[[product]]\nid = 'x'\npattern = 'x'\nmicroarchitecture = 'zen22'\nsource = 's'",
         "product x: no microarchitecture is called zen22", "archspec"),
        ("cpus/site.toml", "[[microarchitecture]]\nid = 'x'\nparent = 'zen2'\nadds = ['avx999']\nsources = []",
         "no CPU feature is called avx999", ""),
        ("tables/cuda/site.toml", "[[branch]]\nid = '570.86'\ncuda = '12.8'\nsources = []", "is no branch", ""),
        ("tables/pci/nvidia.toml", "\"10de:ffff\" = 5", "10de:ffff: it has a name, and a chip", ""),
    ],
)  # fmt: skip
def test_what_would_change_nothing_or_fail_later_is_refused(name, text, said, hint, tmp_path, capsys):
    with pytest.raises(KnowledgeError) as raised:
        read_all(_site(tmp_path, name, text))
    assert said in raised.value.message
    assert hint in raised.value.hint
    assert main(["rules", "--rules", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_notes_beside_the_data_are_left_alone(tmp_path):
    (tmp_path / "README.md").write_text("ours")
    read_all(_site(tmp_path, "tables/gpus/site.toml", PRODUCT))


def test_our_own_data_hold():
    read_all(Knowledge())


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """The examples of the page, each in the file that the page names."""
    found = re.findall(r"`DIR/([\w/]+\.toml)`.*?```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 5
    for name, text in found:
        _site(tmp_path, name, text)
    return tmp_path


def test_the_examples_of_the_page_take_effect(documented, capsys):
    knowledge = Knowledge((documented,))
    assert gpus.by_name(knowledge, "X9-PCIe").capability == "9.0"
    assert driver_cuda(knowledge, "999.1") == "19.0"
    assert cpus.resolve(knowledge, "Genuine Intel 0000 @ 2.1").microarchitecture == "sapphirerapids"
    assert knowledge.runtimes["our-apptainer"].skips_entrypoint
    assert main(["rules", "--rules", str(documented)]) == 0
    out, err = capsys.readouterr()
    assert "RUN005  The image's WORKDIR is not there" in out
    assert f"{documented}/tables/gpus/site.toml: product: adds Tesla X9\n" in err
    assert f"{documented}/catalogue/site.toml: rule: replaces RUN005\n" in err


def test_the_page_names_every_folder_that_is_read():
    named = set(re.findall(r"^\| `([\w/]+)/` \|", PAGE, re.MULTILINE))
    held = {str(path.parent.relative_to(CHECKOUT / "rules")) for path in (CHECKOUT / "rules").rglob("*.toml")}
    assert named == held - {"analysis"}
