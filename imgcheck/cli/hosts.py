"""`imgcheck hosts`: the profiles of a cluster's nodes, grouped into kinds."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from imgcheck.cli import OK, note, options
from imgcheck.cli.files import write_all
from imgcheck.documents import HostProfile, decode, encode
from imgcheck.documents.codec import kind_of, read_document, read_whole
from imgcheck.errors import DocumentError, UsageError

_EXAMPLES = """
srun --nodes=412 --ntasks-per-node=1 imgcheck probe -o hosts/%h.json
imgcheck hosts hosts                            412 nodes: 3 kinds
imgcheck hosts hosts --write kinds              one file for each kind, to keep beside imgcheck.toml
imgcheck hosts kinds --nodes "$SLURM_JOB_NODELIST"      the files that describe these nodes, one of each kind
imgcheck image app.sif --host-probe hosts/*.json
"""


def run(arguments: Sequence[str]) -> int:
    from imgcheck.host.kinds import kinds
    from imgcheck.report.kinds import FORMATS

    parser = options.parser("hosts", "Groups the profiles of hosts that offer the same into kinds.", _EXAMPLES)
    parser.add_argument(
        "directory", metavar="DIR", type=options.path, help="holds *.json as `imgcheck probe -o` writes them"
    )
    options.add_output_option(parser, tuple(FORMATS))
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--write", metavar="DIR", type=options.path, help="write kind1.json, ... there, each with its number"
    )
    either.add_argument("--nodes", metavar="LIST", help="name a file of each kind among these, as in node[01-03],login")
    parsed = parser.parse_args(arguments)
    outputs = options.outputs(parsed.output, tuple(FORMATS))
    if parsed.write and parsed.write.resolve() == parsed.directory.resolve():
        raise UsageError(f"--write {parsed.write}: the directory that is read", "name another: kinds are no nodes")
    if parsed.nodes is not None:
        if parsed.output:
            raise UsageError(f"-o {parsed.output[0]}: --nodes prints names of files alone", "leave one of the two out")
        return _name_files(parsed.directory, parsed.nodes)
    hosts = list(_read(parsed.directory).values())
    found = kinds(hosts)
    for output in outputs:
        options.emit(output, FORMATS[output.format](found, output.file is None))
    if parsed.write:
        _write(parsed.write, found)
    return OK


def _read(directory: Path) -> dict[Path, HostProfile]:
    hosts = _profiles(_documents(directory))
    if not hosts:
        raise DocumentError(f"{directory}: no host profile there", "make them with: imgcheck probe -o DIR/%h.json")
    return hosts


def _documents(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if path.suffix == ".json"]


def _profiles(paths: Iterable[Path]) -> dict[Path, HostProfile]:
    """The hosts in these files; others are left out, each with a line that names it."""
    hosts = {}
    for path in paths:
        if not path.is_file():  # reading a FIFO would wait for its writer
            note(f"{path} is no regular file and is left out")
            continue
        data = read_whole(path)
        if kind_of(data) not in ("", "host"):
            note(f"{path} is no host profile and is left out")
            continue
        hosts[path] = decode(data, HostProfile, str(path))
    return hosts


def _name_files(directory: Path, nodes: str) -> int:
    """Print the files that describe `nodes`, one of each kind, and say which nodes have none.

    A file is of the node that it is called after, as in `imgcheck probe -o %h.json`, or of those that the host in it is
    named after, as the kinds of --write are. The latter are read only where the former are not enough: prologs wait.
    """
    from imgcheck.host.kinds import fold, offer, unfold

    listed = unfold(nodes)
    if listed is None:
        raise UsageError(f"--nodes {nodes:.80}: more nodes than any cluster has")
    wanted = set(listed)
    paths = _documents(directory)
    found = _profiles(path for path in paths if path.stem in wanted)
    missing = wanted - {path.stem for path in found}
    if missing:
        for path, host in _profiles(path for path in paths if path not in found).items():
            # Slurm's names are short ones as a rule, a host's own may have its domain.
            named = {short for name in unfold(host.name) or [host.name] for short in (name, name.partition(".")[0])}
            if named & missing:
                found[path] = host
                missing -= named
    if not found:
        raise DocumentError(
            f"{directory}: no file describes {nodes}", "make them there with: imgcheck probe -o DIR/%h.json"
        )
    if missing:
        note(f"no file in {directory} describes {fold(missing)}")
    for path in {offer(host): path for path, host in found.items()}.values():
        print(path)
    return OK


def _write(directory: Path, found: Sequence[HostProfile]) -> None:
    """Make `directory` hold these kinds alone: a policy with kinds/*.json would still ask for those of an earlier run.

    What cannot be read or written there is met before anything is changed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    earlier = [path for path in sorted(directory.iterdir()) if _is_kind_beyond(len(found), path)]
    write_all(directory, {f"kind{number}.json": encode(kind) for number, kind in enumerate(found, 1)})
    for path in earlier:
        path.unlink()
        note(f"{path} is of an earlier run and was removed")


def _is_kind_beyond(last: int, path: Path) -> bool:
    """Whether `path` is a file that an earlier run wrote for a kind with a number above `last`."""
    named = re.fullmatch(r"kind([1-9]\d*)\.json", path.name, re.ASCII)
    if not named or int(named[1]) <= last or path.is_symlink():
        return False
    return kind_of(read_document(path) or b"") == "host"
