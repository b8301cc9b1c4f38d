"""The host that a job's image is held against: this node, probed once for each of its states, or a described one."""

from contextlib import suppress
from pathlib import Path

from imgcheck.documents import HostProfile, decode, encode
from imgcheck.errors import DocumentError
from imgcheck.knowledge import Knowledge
from imgcheck.preflight import kept, node


def host_of(named: str, directory: str, inputs: dict[str, str], knowledge: Knowledge) -> HostProfile:
    """The host in the file `named`, or this node. What it was made from is added to `inputs`.

    The probe of this node is kept in `directory` (none: "") under its state, so a new boot, driver or allocation of
    GPUs means a new probe. Raises DocumentError for a file that holds no host.
    """
    if named:
        path = Path(named).absolute()
        inputs[str(path)] = kept.fingerprint(str(path))
        try:
            return decode(path.read_bytes(), HostProfile, named)
        except OSError as error:
            raise DocumentError(f"{named}: {error.strerror}", "imgcheck probe -o HOST.json makes one") from None
    place = kept.named(directory, "hosts", f"{knowledge.digest}\n{node.state()}") if directory else ""
    return _kept_host(place) or _probed(place, knowledge)


def _kept_host(place: str) -> HostProfile | None:
    try:
        return decode(kept.read_private(place), HostProfile, place) if place else None
    except DocumentError:
        return None


def _probed(place: str, knowledge: Knowledge) -> HostProfile:
    from imgcheck.host.probe import probe_host

    host = probe_host(knowledge=knowledge)
    if place:
        with suppress(OSError):  # then the next task probes again
            kept.write_private(place, encode(host))
    return host
