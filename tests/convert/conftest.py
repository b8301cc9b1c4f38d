"""Fixtures of the conversion tests: images with a program that tells how it was started."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import isal.igzip  # noqa: F401 - imported before root is given up: an ordinary user may not reach the environment
import pytest
import zstandard  # noqa: F401

from imgcheck.convert.run import Converted, ConvertOptions, convert
from imgcheck.sources.open import open_image
from tests.convert.started import as_ordinary_user
from tests.images import Directory, ImageBuilder
from tests.tools import compile_c

# Prints everything NUL-terminated, since every other byte may be part of an argument or value.
_PROBE = r"""
#include <stdio.h>
#include <unistd.h>
extern char **environ;
static void put(const char *kind, const char *text) { printf("%s%s", kind, text); putchar(0); }
int main(int argc, char **argv) {
    char text[4096];
    FILE *out = fopen("/out", "r+");
    if (out) stdout = out;
    for (int i = 0; i < argc; i++) put("arg ", argv[i]);
    for (char **e = environ; *e; e++) put("env ", *e);
    put("cwd ", getcwd(text, sizeof text) ? text : "?");
    sprintf(text, "%d", (int)getuid());
    put("uid ", text);
    sprintf(text, "%d", (int)getgid());
    put("gid ", text);
    return 0;
}
"""


@pytest.fixture(scope="session")
def probe() -> Path:
    """A static program that tells how it was started: it needs nothing of the image."""
    return compile_c(_PROBE, "-static", "-O1", out="probe")


@pytest.fixture
def probe_image(probe: Path) -> Callable[..., ImageBuilder]:
    """An image without shell, with the probe as /bin/probe; keywords are those of ImageBuilder."""

    def build(**config: object) -> ImageBuilder:
        return ImageBuilder(**config).layer({"bin": Directory(), "bin/probe": probe})

    return build


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Converted]:
    """Convert an ImageBuilder as the tests' own user: `converted(image, "sandbox", destination, force=True)`."""

    def run(image: ImageBuilder, target: str, destination: Path, **options: object) -> Converted:
        layout = tmp_path / f"layout{len(list(tmp_path.glob('layout*')))}"
        image.write(layout, tag="test")
        with open_image(f"oci:{layout}:test") as opened:
            return convert(opened, target, destination, ConvertOptions(**options))

    return run


@pytest.fixture
def converted_rootless(public_tmp: Path) -> Callable[..., Converted]:
    """The same as an ordinary user, below `public_tmp`."""

    def run(image: ImageBuilder, target: str, destination: Path, **options: object) -> Converted:
        layout = Path(tempfile.mkdtemp(dir=public_tmp)) / "layout"
        layout.parent.chmod(0o755)
        image.write(layout, tag="test")

        def work() -> Converted:
            with open_image(f"oci:{layout}:test") as opened:
                return convert(opened, target, destination, ConvertOptions(**options))

        return as_ordinary_user(work)

    return run
