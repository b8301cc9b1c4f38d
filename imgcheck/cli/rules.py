"""`imgcheck rules`: the rules with their titles."""

from collections.abc import Sequence
from pathlib import Path

from imgcheck.cli import OK, note, options
from imgcheck.knowledge import Knowledge
from imgcheck.report.text import placeholders


def run(arguments: Sequence[str]) -> int:
    parser = options.parser(
        "rules",
        "Lists the rules. With --rules it reads all data of the site, and says what they add and replace.",
        "imgcheck rules\nimgcheck explain CPU001",
    )
    options.add_rules_option(parser)
    sites = tuple(parser.parse_args(arguments).rules)
    catalogue = _whole(sites).catalogue if sites else Knowledge().catalogue
    for entry in sorted(catalogue.values(), key=lambda entry: entry.id):
        print(f"{entry.id}  {placeholders(entry.title)}")
    return OK


def _whole(sites: tuple[Path, ...]) -> Knowledge:
    """The knowledge with the data of `sites`, all of which were read; what they change is told on stderr."""
    from imgcheck.check.every_table import changes, read_all

    knowledge = Knowledge(sites)
    read_all(knowledge)
    for site in sites:
        for line in changes(str(site)):
            note(line)
    return knowledge
