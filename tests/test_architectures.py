"""Names of architectures: OCI's and those of files are a bijection, and every spelling leads to a machine."""

import pytest

from imgcheck.architectures import MACHINES, goarch_of, machine_of, spelt
from imgcheck.sources.platforms import goarch


def test_the_names_of_oci_and_of_files_are_a_bijection() -> None:
    assert [machine_of(goarch_of(machine)) for machine in MACHINES] == list(MACHINES)
    assert len({goarch_of(machine) for machine in MACHINES}) == len(MACHINES)
    assert machine_of("wasm") == goarch_of("wasm") == "wasm"


@pytest.mark.parametrize("machine", MACHINES)
def test_platforms_of_images_are_named_alike(machine: str) -> None:
    assert goarch(machine) == goarch_of(machine)
    assert spelt(machine) == spelt(goarch_of(machine)) == machine


@pytest.mark.parametrize(("name", "machine"), [("armv7l", "arm"), ("i686", "i386"), ("x64", "x86_64"), ("z80", "")])
def test_other_spellings(name: str, machine: str) -> None:
    assert spelt(name) == machine
