"""The host that a job's image is held against: this node, probed once for each of its states, or a described one."""

import os
from contextlib import suppress

from imgcheck.documents import HostProfile, decode, encode
from imgcheck.documents.codec import as_bytes, read_whole
from imgcheck.errors import DocumentError
from imgcheck.knowledge import Knowledge
from imgcheck.preflight import kept, node


def host_of(
    named: str, directory: str, inputs: dict[str, str], rules: dict[str, str], knowledge: Knowledge, late: list[str]
) -> HostProfile:
    """The host in the file `named`, or this node. What it was made from is added to `inputs`.

    What of the node did not answer in time is added to `late`: neither such a probe nor an answer by it is to be kept.

    The probe of this node is kept in `directory` (none: "") under its state, so a new boot, driver or allocation of
    GPUs means a new probe, and so do other data files (`rules`, with their fingerprints).
    Raises DocumentError for a file that holds no host.
    """
    if named:
        path = os.path.join(os.getcwd(), named)
        inputs[path] = kept.fingerprint(path)
        try:
            return decode(read_whole(path), HostProfile, named)
        except OSError as error:
            raise DocumentError(f"{named}: {error.strerror}", "imgcheck probe -o HOST.json makes one") from None
    state = "\n".join([kept.installation(), *map("=".join, rules.items()), node.state()])
    place = kept.named(directory, "hosts", state) if directory else ""
    return _kept_host(place, state) or _probed(place, state, knowledge, late)


def _kept_host(place: str, state: str) -> HostProfile | None:
    told, _, data = kept.read_private(place).partition(b"\0") if place else (b"", b"", b"")
    try:
        return decode(data, HostProfile, place) if told == as_bytes(state) else None
    except DocumentError:
        return None


def _probed(place: str, state: str, knowledge: Knowledge, late: list[str]) -> HostProfile:
    from imgcheck.host.probe import probe_host

    host = probe_host(knowledge=knowledge, late=late)
    if place and not late:
        with suppress(OSError):  # then the next task probes again
            kept.write_private(place, as_bytes(state) + b"\0" + encode(host))
    return host
