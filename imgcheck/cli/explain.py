"""`imgcheck explain`: one rule, when it fires, what the user would see, and the sources."""

import re
import sys
import textwrap
from collections.abc import Sequence

from imgcheck.cli import OK, nearest, options
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Catalogued
from imgcheck.report.text import placeholders
from imgcheck.report.width import columns


def run(arguments: Sequence[str]) -> int:
    parser = options.parser("explain", "Explains a rule, with its sources.", "imgcheck explain GPU001")
    parser.add_argument("rule", metavar="RULE", help="its id, as in a report")
    options.add_rules_option(parser)
    parsed = parser.parse_args(arguments)
    catalogue = Knowledge(tuple(parsed.rules)).catalogue
    entry = catalogue.get(parsed.rule.upper())
    if entry is None:
        near = nearest(parsed.rule.upper(), catalogue)
        raise UsageError(f"no rule {parsed.rule!r}", f"{near}imgcheck rules lists them")
    sys.stdout.write(_page(entry, min(columns(100), 100)))
    return OK


def _page(entry: Catalogued, width: int) -> str:
    errors = "\n".join([entry.predicted_error, *entry.variants.values()])
    parts = [
        f"{entry.id}  {entry.title}",
        _section("What it is", _paragraphs(entry.description), width),
        _section("What you would see", "\n".join(dict.fromkeys(errors.splitlines())), width, hang="    "),
        _section("Why", _told(entry.why), width),
        _section("Way out", _told(entry.remedy), width),
        "Sources\n" + "\n".join(f"  {source}" for source in entry.sources),
    ]
    return placeholders("\n\n".join(part for part in parts if part)) + "\n"


def _told(text: str) -> str:
    """`text`, but where all of it is filled in by the check."""
    return "It depends on what is found, and stands with the finding." if _WHOLE.fullmatch(text.strip()) else text


_WHOLE = re.compile(r"\{\w+\}")
"""A text that is one placeholder."""


def _paragraphs(text: str) -> str:
    """`text` with each paragraph on one line: the lines of the data files are of another width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _section(title: str, text: str, width: int, hang: str = "  ") -> str:
    if not text:
        return ""
    lines = [
        # What one would look for or type breaks at no hyphen of its own.
        textwrap.fill(
            line, width, initial_indent="  ", subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        )
        for line in text.strip().splitlines()
    ]
    return title + "\n" + "\n".join(lines)
