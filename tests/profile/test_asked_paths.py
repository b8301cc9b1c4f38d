"""What runtimes ask of an image's tree: a profile looks for all of it, for that of a site's runtimes as well."""

import io
from pathlib import Path

import pytest

from imgcheck.check import runtime as runtime_rules
from imgcheck.documents.image import ImageConfig, ImageProfile, LayerInfo, Platform
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Runtime
from imgcheck.layers.stream import TarLayer
from imgcheck.profile.build import build_profile, kept_profile
from imgcheck.profile.store import Store
from imgcheck.progress import SILENT
from imgcheck.sources.model import Image
from tests.layers.layouts import Member, archive, digest_of, directory, file, symlink

KNOWLEDGE = Knowledge()


def image_of(*members: Member) -> Image:
    blob = archive(members)
    layer = TarLayer(LayerInfo(diff_id=digest_of(blob)), lambda: io.BytesIO(blob))
    return Image("test", Platform(), ImageConfig(), (layer,), config_digest=digest_of(b"config"))


def profile_of(*members: Member, knowledge: Knowledge = KNOWLEDGE) -> ImageProfile:
    return build_profile(image_of(*members), SILENT, knowledge=knowledge)


def paths_in(runtime: Runtime) -> set[str]:
    """Every absolute path in the description of a runtime, whichever key it stands under."""
    values = [getattr(runtime, name) for name in runtime.__struct_fields__ if name != "environment_option"]
    listed = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return {each for each in listed if isinstance(each, str) and each.startswith("/")}


@pytest.mark.parametrize("runtime", KNOWLEDGE.runtimes.values(), ids=lambda runtime: runtime.id)
def test_every_path_of_every_runtime_is_looked_for(runtime: Runtime) -> None:
    assert paths_in(runtime) <= set(profile_of(directory("a")).tree.looked_for)


def test_the_paths_of_rules_on_every_runtime_are_looked_for() -> None:
    owned = {family.owns_directory for family in KNOWLEDGE.families.values()} - {""}
    asked = {*owned, *runtime_rules._HOMES.values()}
    assert owned
    assert asked <= set(profile_of(directory("a")).tree.looked_for)


def test_links_at_and_above_what_is_looked_for_are_told_of_dangling_or_not() -> None:
    tree = profile_of(
        symlink("lib64", "gone"), symlink("usr/lib64/libcuda.so.1", "libcuda.so.396"), symlink("etc", "/private/etc"),
        symlink("usr/lib64/unasked", "gone"),
    ).tree  # fmt: skip
    assert tree.symlinks == {
        "/lib64": "gone",
        "/usr/lib64/libcuda.so.1": "libcuda.so.396",
        "/etc": "/private/etc",
    }


@pytest.fixture
def site(tmp_path: Path) -> Knowledge:
    (tmp_path / "site/runtimes").mkdir(parents=True)
    (tmp_path / "site/runtimes/own.toml").write_text(
        '[[runtime]]\nid = "own"\ntitle = "Own"\nsources = ["the site"]\nrequires_files = ["/etc/site.conf"]\n'
    )
    return Knowledge((tmp_path / "site",))


def test_paths_of_a_sites_runtime_are_looked_for(site: Knowledge) -> None:
    tree = profile_of(file("etc/site.conf", "x"), knowledge=site).tree
    assert "/etc/site.conf" in tree.looked_for
    assert "/etc/site.conf" in tree.files
    assert "/etc/site.conf" not in profile_of(file("etc/site.conf", "x")).tree.looked_for


def test_a_kept_profile_that_tells_too_little_is_made_again_and_then_serves_both(
    site: Knowledge, tmp_path: Path
) -> None:
    image, store = image_of(file("etc/site.conf", "x")), Store(tmp_path / "store", "key")
    build_profile(image, SILENT, store)
    assert kept_profile(image, store) is not None
    assert kept_profile(image, store, site) is None
    assert "/etc/site.conf" in build_profile(image, SILENT, store, site).tree.files
    for knowledge in (site, None):
        kept = kept_profile(image, store, knowledge)
        assert kept is not None
        assert "/etc/site.conf" in kept.tree.files
