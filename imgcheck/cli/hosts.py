"""`imgcheck hosts`: the profiles of a cluster's nodes, grouped into kinds."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from imgcheck.cli import OK, options
from imgcheck.cli.files import write, write_all
from imgcheck.documents import HostProfile, decode, encode
from imgcheck.documents.codec import kind_of, read_document, read_whole
from imgcheck.errors import DocumentError, UsageError
from imgcheck.report.text import safe

_EXAMPLES = """
srun --nodes=412 --ntasks-per-node=1 imgcheck probe -o hosts/%h.json
imgcheck hosts hosts                            412 nodes: 3 kinds
imgcheck hosts hosts --write kinds              one file for each kind, to keep beside imgcheck.toml
imgcheck image app.sif --host-probe hosts/*.json
"""


def run(arguments: Sequence[str]) -> int:
    from imgcheck.host.kinds import kinds
    from imgcheck.report.kinds import FORMATS

    parser = options.parser("hosts", "Groups the profiles of hosts that offer the same into kinds.", _EXAMPLES)
    parser.add_argument("directory", metavar="DIR", type=Path, help="holds *.json as `imgcheck probe -o` writes them")
    options.add_output_option(parser, tuple(FORMATS))
    parser.add_argument("--write", metavar="DIR", type=Path, help="write kind1.json, ... there, each with its number")
    parsed = parser.parse_args(arguments)
    outputs = options.outputs(parsed.output, tuple(FORMATS))
    if parsed.write and parsed.write.resolve() == parsed.directory.resolve():
        raise UsageError(f"--write {parsed.write}: the directory that is read", "name another: kinds are no nodes")
    hosts = _read(parsed.directory)
    found = kinds(hosts)
    for output in outputs:
        text = FORMATS[output.format](found, output.file is None)
        if output.file is None:
            sys.stdout.write(text)
        else:
            write(output.file, text.encode())
    if parsed.write:
        _write(parsed.write, found)
    return OK


def _read(directory: Path) -> list[HostProfile]:
    hosts = []
    for path in sorted(directory.iterdir()):
        if path.suffix != ".json":
            continue
        if not path.is_file():  # reading a FIFO would wait for its writer
            print(f"imgcheck: note: {safe(str(path))} is no regular file and is left out", file=sys.stderr)
            continue
        data = read_whole(path)
        if kind_of(data) not in ("", "host"):
            print(f"imgcheck: note: {safe(str(path))} is no host profile and is left out", file=sys.stderr)
            continue
        hosts.append(decode(data, HostProfile, str(path)))
    if not hosts:
        raise DocumentError(f"{directory}: no host profile there", "make them with: imgcheck probe -o DIR/%h.json")
    return hosts


def _write(directory: Path, found: Sequence[HostProfile]) -> None:
    """Make `directory` hold these kinds alone: a policy with kinds/*.json would still ask for those of an earlier run.

    What cannot be read or written there is met before anything is changed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    earlier = [path for path in sorted(directory.iterdir()) if _is_kind_beyond(len(found), path)]
    write_all(directory, {f"kind{number}.json": encode(kind) for number, kind in enumerate(found, 1)})
    for path in earlier:
        path.unlink()
        print(f"imgcheck: note: {safe(str(path))} is of an earlier run and was removed", file=sys.stderr)


def _is_kind_beyond(last: int, path: Path) -> bool:
    """Whether `path` is a file that an earlier run wrote for a kind with a number above `last`."""
    named = re.fullmatch(r"kind([1-9]\d*)\.json", path.name, re.ASCII)
    if not named or int(named[1]) <= last or path.is_symlink():
        return False
    return kind_of(read_document(path) or b"") == "host"
