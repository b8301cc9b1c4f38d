"""The short way of reading the arguments, which imports no parser, says what the parser says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.cli import preflight

_WORDS = st.sampled_from([
    "app.sif", "", "-", "-x", "--", "=", "--runtime", "--runtime=docker", "docker", "--rules", "--rules=/etc",
    "--scheduler", "--scheduler=", "sge", "--incompatible", "requeue", "--incompatible=later", "--on-missing", "pass",
    "--on-missing=fail", "--timeout", "12.5", "--timeout=-3", "-3", "soon", "--host", "n.json", "--cache=/c",
    "--host-probe", "--attached-digest", "sha256:1", "--store", "--store=/s", "--require-gpu", "--require-gpu=1",
    "--trust-attached", "--no-store", "--help", "--list-options", "--unknown",
])  # fmt: skip


@given(st.lists(_WORDS, max_size=6))
def test_both_ways_read_the_same(arguments):
    plainly = preflight._plainly(arguments)
    if plainly is not None:
        parsed = preflight._parser().parse_args(arguments)
        parsed.rules = [str(path) for path in parsed.rules]
        assert vars(plainly) | {"list_options": None} == vars(parsed)


@pytest.mark.parametrize("option", sorted({**preflight._VALUES, **preflight._FLAGS}))
def test_every_option_is_read_without_the_parser(option):
    allowed = {"--incompatible": "requeue", "--on-missing": "pass", "--timeout": "3"}
    value = [] if option in preflight._FLAGS else [allowed.get(option, "word")]
    assert preflight._plainly(["app.sif", option, *value]) is not None


def test_the_parser_knows_no_other_option():
    known = {name for action in preflight._parser()._actions for name in action.option_strings}
    assert known - {"-h", "--help", "--list-options"} == {*preflight._VALUES, *preflight._FLAGS}
