"""Which platform of an image is taken."""

import pytest

from imgcheck.documents.image import Platform
from imgcheck.errors import UsageError
from imgcheck.sources.platforms import distance, platform_for, wanted_platform


def _p(text: str) -> Platform:
    return Platform(*text.split("/"))


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("linux/arm64", "linux/arm64"),
        ("arm64", "linux/arm64"),
        ("aarch64", "linux/arm64"),
        ("linux/x86_64", "linux/amd64"),
        ("Linux/AMD64/v3", "linux/amd64/v3"),
    ],
)
def test_requested_platform(requested: str, expected: str) -> None:
    assert str(wanted_platform(requested)) == expected


@pytest.mark.parametrize(
    ("machine", "expected"), [("aarch64", "linux/arm64"), ("armv8l", ""), ("sparc64", ""), ("", "")]
)
def test_a_host_asks_for_its_platform_where_images_have_a_name_for_it(machine: str, expected: str) -> None:
    found = platform_for(machine)
    assert (str(wanted_platform(found)) if found else "") == expected


@pytest.mark.parametrize("requested", ["", "linux/", "a/b/c/d", "/amd64"])
def test_absurd_platform_is_a_usage_error(requested: str) -> None:
    with pytest.raises(UsageError, match="not OS/ARCH"):
        wanted_platform(requested)


@pytest.mark.parametrize(("wanted", "offered"), [("linux/arm64", "linux/arm64/v8"), ("linux/amd64/v1", "linux/amd64")])
def test_variant_that_goes_without_saying_is_the_same(wanted: str, offered: str) -> None:
    assert distance(_p(wanted), _p(offered)) == 0


@pytest.mark.parametrize(
    ("wanted", "offered"),
    [("linux/amd64", "linux/arm64"), ("linux/amd64", "windows/amd64"), ("linux/amd64/v2", "linux/amd64/v3")],
)
def test_other_systems_and_higher_variants_than_asked_for_do_not_match(wanted: str, offered: str) -> None:
    assert distance(_p(wanted), _p(offered)) is None


def test_nearest_lower_variant_wins_and_an_unnamed_one_goes_before_a_higher() -> None:
    offers = ["linux/amd64", "linux/amd64/v2", "linux/amd64/v4"]
    ranked = sorted((far, offer) for offer in offers if (far := distance(_p("linux/amd64/v3"), _p(offer))) is not None)
    assert [offer for _, offer in ranked] == ["linux/amd64/v2", "linux/amd64"]
    assert distance(_p("linux/amd64"), _p("linux/amd64")) < distance(_p("linux/amd64"), _p("linux/amd64/v3"))
