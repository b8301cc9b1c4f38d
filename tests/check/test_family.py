"""An image whose form only some runtimes take is judged under these, unless others are named."""

import msgspec
import pytest

from imgcheck.check.run import Request, check, not_installed
from imgcheck.documents.host import HostProfile, InstalledRuntime, known
from imgcheck.documents.image import ImageProfile
from tests.check.contexts import KNOWLEDGE, code, context

HOST = HostProfile("1.0", "vm")


def _image(family: str) -> ImageProfile:
    return msgspec.structs.replace(context({"/bin/p": code(type="executable")}).image, family=family)


def _host(*runtimes: str) -> HostProfile:
    return msgspec.structs.replace(HOST, runtimes=known(tuple(map(InstalledRuntime, runtimes)), "PATH"))


def _judged(family: str, host: HostProfile, *asked: str) -> tuple[set[str], str]:
    report = check(_image(family), [host], Request(runtimes=asked), KNOWLEDGE)
    return {cell.runtime for cell in report.cells}, report.runtime_chosen_by


def _of_family(family: str) -> set[str]:
    return {name for name, runtime in KNOWLEDGE.runtimes.items() if runtime.family == family}


@pytest.mark.parametrize("family", ["apptainer", "udocker", "charliecloud"])
def test_runtimes_of_another_family_are_not_asked(family: str):
    assert _judged(family, HOST) == (_of_family(family), "best")
    assert _judged(family, _host("docker")) == (_of_family(family), "best")
    assert _judged(family, _host("docker"), "docker") == ({"docker"}, "option")


def test_of_those_on_the_host_the_ones_that_take_it_are_asked():
    assert _judged("apptainer", _host("docker", "apptainer")) == ({"apptainer"}, "host")
    assert _judged("", _host("docker", "apptainer")) == ({"docker", "apptainer"}, "host")


def test_it_is_said_that_none_of_those_is_on_the_host():
    image = _image("apptainer")
    told = not_installed(image, _host("docker"), Request(), KNOWLEDGE)
    assert told == "vm has docker, which does not start such an image; judged under apptainer's"
    for host, request in (
        (HOST, Request()),
        (_host("docker", "apptainer"), Request()),
        (_host("docker"), Request(runtimes=("docker",))),
    ):
        assert not_installed(image, host, request, KNOWLEDGE) == ""
    assert not_installed(_image(""), _host("docker"), Request(), KNOWLEDGE) == ""
