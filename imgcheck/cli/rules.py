"""`imgcheck rules`: the rules with their titles."""

from collections.abc import Sequence

from imgcheck.cli import OK, options
from imgcheck.knowledge import Knowledge
from imgcheck.report.text import placeholders


def run(arguments: Sequence[str]) -> int:
    parser = options.parser("rules", "Lists the rules.", "imgcheck rules\nimgcheck explain CPU001")
    options.add_rules_option(parser)
    catalogue = Knowledge(tuple(parser.parse_args(arguments).rules)).catalogue
    for entry in sorted(catalogue.values(), key=lambda entry: entry.id):
        print(f"{entry.id}  {placeholders(entry.title)}")
    return OK
