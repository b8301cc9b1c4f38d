"""`imgcheck binary`: what single ELF, fatbin or archive files need."""

import mmap
import sys
from collections.abc import Sequence
from pathlib import Path

from imgcheck.cli import OK, TROUBLE, options
from imgcheck.cli.files import write
from imgcheck.documents.facts import CodeFacts
from imgcheck.errors import SourceError
from imgcheck.report.text import safe

_EXAMPLES = """
imgcheck binary ./solver
imgcheck binary -o json build/*.so
"""


def run(arguments: Sequence[str]) -> int:
    from imgcheck.report.binary import FORMATS

    parser = options.parser("binary", "Shows what single files need of CPU, GPU and loader.", _EXAMPLES)
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path)
    parser.add_argument("-o", "--output", metavar="FORMAT[=FILE]", action="append", default=[], help="table, json")
    parsed = parser.parse_args(arguments)
    outputs = options.outputs(parsed.output, tuple(FORMATS))
    facts: dict[str, CodeFacts] = {}
    status = OK
    for file in parsed.files:
        try:
            facts[str(file)] = _facts(file)
        except SourceError as error:
            print(f"imgcheck: {safe(error.message)}", file=sys.stderr)
            status = TROUBLE
    for output in outputs:
        text = FORMATS[output.format](facts, output.file is None)
        if output.file is None:
            sys.stdout.write(text)
        else:
            write(output.file, text.encode())
    return status


def _facts(path: Path) -> CodeFacts:
    from imgcheck.binaries.analyse import analyse

    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            facts = analyse(view)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is empty"
        raise SourceError(f"{path}: {reason}") from None
    if facts is None:
        raise SourceError(f"{path}: neither ELF, fatbin, cubin, PTX nor an archive of them")
    if facts.error and facts.linkage is None and facts.gpu is None:
        raise SourceError(f"{path}: {facts.error}")
    return facts
