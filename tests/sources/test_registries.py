"""Where a name leads: short names, registries.conf, mirrors; and the challenges of registries."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from imgcheck.errors import SourceError, UsageError
from imgcheck.knowledge import Knowledge
from imgcheck.sources.attempts import _seconds
from imgcheck.sources.reference import parse
from imgcheck.sources.registries import canonical_name, endpoints, short_names
from imgcheck.sources.registry_auth import Challenge, check_realm, parse_challenge
from tests.sources.conftest import QUICK, Server, read

DIGEST = "sha256:" + "0" * 64


def _places(name: str, tmp_path: Path, conf: str = "", **environment: str) -> list[str]:
    (tmp_path / "registries.conf").write_text(conf)
    variables = {"CONTAINERS_REGISTRIES_CONF": str(tmp_path / "registries.conf")} | environment
    return [f"{one.host}/{one.repository}" for sources in endpoints(parse(name), variables) for one in sources]


def test_short_names_lead_to_the_built_in_registry_and_single_ones_to_its_library(tmp_path: Path) -> None:
    defaults = short_names()
    assert _places("debian", tmp_path) == [f"{defaults.endpoint}/{defaults.namespace}/debian"]
    assert _places("qnib/tool", tmp_path) == [f"{defaults.endpoint}/qnib/tool"]
    for host in (defaults.host, *defaults.aliases):
        assert _places(f"{host}/debian", tmp_path) == [f"{defaults.endpoint}/{defaults.namespace}/debian"]


def test_other_registries_have_no_library(tmp_path: Path) -> None:
    assert _places("registry:5000/base", tmp_path) == ["registry:5000/base"]
    assert _places("base", tmp_path, IMGCHECK_DEFAULT_REGISTRY="registry:5000") == ["registry:5000/base"]


def test_search_registries_are_asked_in_turn_unless_the_environment_names_one(tmp_path: Path) -> None:
    conf = 'unqualified-search-registries = ["one.example", "two.example"]'
    assert _places("a/b", tmp_path, conf) == ["one.example/a/b", "two.example/a/b"]
    assert _places("three.example/a/b", tmp_path, conf) == ["three.example/a/b"]
    assert _places("a/b", tmp_path, conf, IMGCHECK_DEFAULT_REGISTRY="mine.example") == ["mine.example/a/b"]


def test_longest_prefix_is_rewritten_at_component_borders(tmp_path: Path) -> None:
    conf = """
        [[registry]]
        prefix = "big.example/team"
        location = "small.example/mirror/of"
        [[registry]]
        prefix = "big.example"
        location = "other.example"
        [[registry]]
        prefix = "*.wild.example"
        location = "tame.example"
    """
    assert _places("big.example/team/x", tmp_path, conf) == ["small.example/mirror/of/x"]
    assert _places("big.example/teammate/x", tmp_path, conf) == ["other.example/teammate/x"]
    assert _places("bigger.example/x", tmp_path, conf) == ["bigger.example/x"]
    assert _places("a.wild.example/x", tmp_path, conf) == ["tame.example/x"]


def test_mirrors_go_first_and_some_only_for_digests(tmp_path: Path) -> None:
    conf = """
        [[registry]]
        location = "big.example"
        [[registry.mirror]]
        location = "any.example"
        [[registry.mirror]]
        location = "digests.example"
        pull-from-mirror = "digest-only"
    """
    assert _places("big.example/x:1", tmp_path, conf) == ["any.example/x", "big.example/x"]
    assert len(_places(f"big.example/x@{DIGEST}", tmp_path, conf)) == 3


def test_blocked_names_and_damaged_files_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"blocked by registries\.conf"):
        _places("bad.example/x", tmp_path, '[[registry]]\nlocation = "bad.example"\nblocked = true')
    with pytest.raises(SourceError, match="cannot be read"):
        _places("x", tmp_path, "[[")
    with pytest.raises(SourceError, match="not a registry host"):
        _places("x", tmp_path, IMGCHECK_DEFAULT_REGISTRY="http://x/")


def test_two_ways_to_write_a_name_are_equal() -> None:
    names = short_names()
    assert canonical_name("a", names) == canonical_name(f"{names.host}/{names.namespace}/a:latest", names)
    assert canonical_name("registry:5000/a", names) == "registry:5000/a:latest"
    assert canonical_name("No Name", names) == "No Name"


def test_short_names_lead_where_the_data_of_the_site_say(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/registries.toml").write_text(
        '[short_names]\nhost = "hub.site"\naliases = []\nendpoint = "hub.site:5000"\nnamespace = "all"\n'
        'credentials_key = "hub.site"\nsources = ["the site"]\n'
    )
    names = short_names(Knowledge((tmp_path,)))
    ((endpoint,),) = endpoints(parse("nosuch"), {"HOME": str(tmp_path), "CONTAINERS_REGISTRIES_CONF": ""}, names)
    assert (endpoint.host, endpoint.repository) == ("hub.site:5000", "all/nosuch")
    assert canonical_name("nosuch", names) == "hub.site/all/nosuch:latest"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'Bearer realm="https://a.example/t",service="s",scope="repository:x:pull,push"',
            Challenge("bearer", "https://a.example/t", "s", "repository:x:pull,push"),
        ),
        ("bearer realm=https://a.example/t", Challenge("bearer", "https://a.example/t")),
        ('Basic realm="x", Bearer realm="https://a.example/t"', Challenge("bearer", "https://a.example/t")),
        ('Basic realm="x"', Challenge("basic")),
        ("Negotiate", Challenge("")),
        ("", Challenge("")),
    ],
)
def test_challenges_are_parsed(header: str, expected: Challenge) -> None:
    assert parse_challenge(header) == expected


@pytest.mark.parametrize(
    ("realm", "origin", "message"),
    [
        ("http://auth.example/t", "https://registry.example", "without TLS"),
        ("https://169.254.169.254/t", "https://registry.example", "inside this network"),
        ("https://10.0.0.1/t", "https://registry.example", "inside this network"),
        ("https://localhost/t", "https://registry.example", "inside this network"),
        ("gopher://auth.example/t", "https://registry.example", "not a plain"),
    ],
)
def test_token_server_that_an_attacker_would_name_is_refused(realm: str, origin: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        check_realm(realm, origin)


@pytest.mark.parametrize(
    ("realm", "origin"),
    [
        ("https://auth.example/t", "https://registry.example"),
        ("http://auth.example/t", "http://registry.example"),
        ("http://127.0.0.1:5001/t", "http://localhost:5000"),
        ("https://10.0.0.1/t", "https://10.0.0.1"),
    ],
)
def test_token_server_elsewhere_is_accepted_where_credentials_stay_safe(realm: str, origin: str) -> None:
    check_realm(realm, origin)


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("", None), ("soon", None), ("-1", None)])
def test_retry_after_in_seconds(text: str, seconds: float | None) -> None:
    assert _seconds(text) == seconds


def test_retry_after_as_a_date_in_the_past_is_now() -> None:
    assert _seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0


@pytest.mark.parametrize(
    "conf",
    [
        pytest.param('unqualified-search-registries = "one.example"', id="a name where a list belongs"),
        pytest.param('[registry]\nprefix = "one.example"\nblocked = true', id="a table where a list belongs"),
        pytest.param('[[registry]]\nprefix = "one.example"\nmirror = 5', id="mirrors that are a number"),
        pytest.param('[[registry]]\nprefix = "one.example"\nblocked = "true"', id="text where a truth belongs"),
        pytest.param("a = " + "[" * 100_000, id="nested without end"),
        pytest.param("a = ", id="no TOML"),
    ],
)
def test_configuration_that_means_nothing_is_refused_and_not_passed_over(conf: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"registries\.conf: cannot be read"):
        _places("one.example/a", tmp_path, conf)


def test_location_that_is_no_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"to which registries\.conf leads, is not a registry host"):
        _places("one.example/a", tmp_path, '[[registry]]\nprefix = "one.example"\nlocation = "two.example:99999"')


@pytest.mark.parametrize(
    ("name", "local"),
    [("localhost:5000", True), ("127.0.0.1", True), ("[::1]:5000", True), ("127.evil.example", False), ("b.c", False)],
)
def test_plain_http_is_tried_with_this_machine_alone(name: str, local: bool, tmp_path: Path) -> None:
    (tmp_path / "none.conf").write_text("")
    ((endpoint,),) = endpoints(parse(f"{name}/a"), {"CONTAINERS_REGISTRIES_CONF": str(tmp_path / "none.conf")})
    assert endpoint.is_local is local


def test_password_is_not_tried_at_one_search_registry_after_the_other(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "registries.conf"
    conf.write_text(f'unqualified-search-registries = ["{server.address}", "other.example"]')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(conf))
    options = replace(QUICK, username="user", password="secret")
    with pytest.raises(UsageError, match="looked for in 2 registries"):
        read("team/app", options)
    assert server.requests == []
    with pytest.raises(SourceError, match="no such image"):
        read(f"{server.address}/team/app", options)


@pytest.mark.parametrize("parameters", ["a" * 65000, "a=" * 32000, 'a="' * 20000, " " * 65000, "a " * 32000])
def test_a_challenge_made_to_be_slow_is_not(parameters: str) -> None:
    started = time.process_time()
    assert parse_challenge(f"Bearer x {parameters}").scheme == "bearer"
    assert time.process_time() - started < 2
