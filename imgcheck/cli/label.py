"""`imgcheck label`: what an image needs, as OCI labels; and whether those that it carries are its own."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence

from imgcheck.cli import FOUND, OK, options
from imgcheck.cli.reference import profile_of
from imgcheck.errors import UsageError
from imgcheck.knowledge import Knowledge
from imgcheck.report.text import safe

_EXAMPLES = """
imgcheck label oci:build:latest
imgcheck label oci:build:latest | sed 's/^/--config.label=/' | xargs -d '\\n' umoci config --image build:latest
imgcheck label oci:build:latest -o dockerfile
imgcheck label --check docker://localhost:5000/app:1.2
"""


def run(arguments: Sequence[str]) -> int:
    from imgcheck.report.labels import labels, stale

    parser = options.parser(
        "label",
        "Prints what an image needs as labels for its configuration; docs/ci.md tells how to put them there. A label "
        "states what the image's files show, so it is a floor: the image needs at least this.",
        _EXAMPLES,
    )
    parser.add_argument("reference", metavar="REF", help="as for `imgcheck image`")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the image carries others than its own")
    options.add_output_option(parser, tuple(_FORMATS))
    options.add_source_options(parser)
    options.add_cache_options(parser)
    options.add_rules_option(parser)
    options.add_quiet_option(parser)
    parsed = parser.parse_args(arguments)
    if parsed.check and parsed.output:
        raise UsageError(f"-o {parsed.output[0]}: --check prints no labels", "leave one of the two out")
    outputs = options.outputs(parsed.output, tuple(_FORMATS))
    knowledge = Knowledge(tuple(parsed.rules))
    image = profile_of(parsed, knowledge)
    derived = labels(image, knowledge)
    if parsed.check:
        problems = stale(image, derived)
        for problem in problems:
            print(safe(problem))
        return FOUND if problems else OK
    for output in outputs:
        options.emit(output, _FORMATS[output.format](derived))
    return OK


def _lines(labels: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in labels.items())


def _json(labels: Mapping[str, str]) -> str:
    return json.dumps(labels, indent=1) + "\n"


def _dockerfile(labels: Mapping[str, str]) -> str:
    # Within double quotes a Dockerfile reads the backslash, the quote and the dollar.
    quoted = {key: "".join(f"\\{c}" if c in '\\"$' else c for c in value) for key, value in labels.items()}
    return "".join(f'LABEL {key}="{value}"\n' for key, value in quoted.items())


def _options(labels: Mapping[str, str]) -> str:
    return " ".join(shlex.join(("--label", f"{key}={value}")) for key, value in labels.items()) + "\n"


_FORMATS: dict[str, Callable[[Mapping[str, str]], str]] = {
    "lines": _lines,
    "json": _json,
    "dockerfile": _dockerfile,
    "options": _options,
}
