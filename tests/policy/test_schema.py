"""The published schema of imgcheck.toml: what an editor says of a policy is what imgcheck says of it."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import jsonschema
import pytest

from imgcheck.errors import PolicyError
from imgcheck.knowledge import Knowledge
from imgcheck.policy.document import Policy, RequiredHost, Waiver, read_policy
from tests.tools import CHECKOUT

SCHEMA = CHECKOUT / "docs/schema/policy.json"
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", (CHECKOUT / "docs/policy.md").read_text(), re.DOTALL | re.MULTILINE)
WAIVER = '[[waiver]]\nrule = "CPU001"\nreason = "old"\nexpires = 2027-03-31\n'


def test_the_published_schema_is_that_of_the_code():
    generate = runpy.run_path(str(CHECKOUT / "docs/schema/generate.py"))
    assert SCHEMA.read_text() == generate["schema"]("policy"), "run `make schema`"


def test_every_key_is_described():
    parts = json.loads(SCHEMA.read_text())["$defs"]
    for part in (Policy, RequiredHost, Waiver):
        assert all("description" in parts[part.__name__]["properties"][key] for key in part.__struct_fields__)


@pytest.mark.parametrize("text", [*EXAMPLES, "", WAIVER, '[[host]]\nprofile = "hosts/*.json"\n'])
def test_what_is_right_is_right_for_both(tmp_path, text):
    assert _complaint_of_schema(text) is None
    assert _complaint_of_imgcheck(tmp_path, text) is None


@pytest.mark.parametrize("text", [
    '[[host]]\ncpuu = "haswell"\n',
    "[[host]]\ncpu = 3\n",
    '[[host]]\ngpus = "A100"\n',
    'fail_on = "always"\n',
    'allow_unknown = "yes"\n',
    WAIVER.replace("reason", "because"),
    WAIVER.replace('"old"', '" "'),
    WAIVER.replace("2027-03-31", "12"),
    '[severity]\nCPU001 = "fatal"\n',
    "[runtimes]\ndocker = true\n",
])  # fmt: skip
def test_what_is_wrong_is_wrong_for_both(tmp_path, text):
    assert _complaint_of_schema(text)
    assert _complaint_of_imgcheck(tmp_path, text)


def _complaint_of_schema(text: str) -> str | None:
    # TOML's dates are texts for an editor, as they are in JSON.
    plain = json.loads(json.dumps(tomllib.loads(text), default=str))
    try:
        jsonschema.validate(plain, json.loads(SCHEMA.read_text()), format_checker=jsonschema.FormatChecker())
    except jsonschema.ValidationError as error:
        return error.message
    return None


def _complaint_of_imgcheck(directory: Path, text: str) -> str | None:
    file = directory / "imgcheck.toml"
    file.write_text(text)
    try:
        read_policy(file, Knowledge())
    except PolicyError as error:
        return error.message
    return None
