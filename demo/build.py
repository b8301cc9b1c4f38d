"""Writes demo/skylake512, the bundled image: `python -m demo.build` from the checkout's root.

It is committed, so that `make demo` needs no compiler; a test compares it with what this recipe makes.
"""

import shutil
from pathlib import Path

from tests.images import File, ImageBuilder
from tests.tools import compile_c

HERE = Path(__file__).resolve().parent
LAYOUT = HERE / "skylake512"
FLAGS = (
    "-O3",
    "-ffast-math",
    "-march=skylake-avx512",
    "-mprefer-vector-width=512",
    "-ffreestanding",
    "-fno-stack-protector",
    "-nostdlib",
    "-static",
    "-Wl,--build-id=none",
)


def program() -> Path:
    """The compiled program."""
    return compile_c((HERE / "matmul.c").read_text(), *FLAGS, out="matmul")


def build(directory: Path) -> Path:
    """Write the image as an OCI layout into `directory`."""
    image = ImageBuilder(entrypoint=("/usr/local/bin/matmul",), environment=("PATH=/usr/local/bin",))
    image.layer({"etc/os-release": 'NAME="demo"\n'}, "ADD os-release /etc/")
    compiled = File(program().read_bytes(), 0o755)
    image.layer(
        {"usr/local/bin/matmul": compiled}, "RUN gcc -O3 -march=skylake-avx512 matmul.c -o /usr/local/bin/matmul"
    )
    return image.write(directory, tag="skylake512")


if __name__ == "__main__":
    shutil.rmtree(LAYOUT, ignore_errors=True)
    print(build(LAYOUT))
