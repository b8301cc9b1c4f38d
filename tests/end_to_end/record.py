"""Writes docs/real-image.md: the commands of the real input with what they print (`make docs`)."""

import re
import shlex
import tempfile
from pathlib import Path

from tests.end_to_end.command import imgcheck
from tests.end_to_end.hosts import HOSTS
from tests.end_to_end.real_image import tensorflow_layout
from tests.peers import Registry, start_registry
from tests.tools import CHECKOUT

TARGET = CHECKOUT / "docs" / "real-image.md"
NAME = "qnib/cv-nccl92-tf-dev"
_SHOWN = 70
"""Lines of a report that the page shows."""

_INTRODUCTION = """\
# A real image from a registry

`make docs` writes this page: every command was run, and what it printed stands below it (long reports are cut).

The image is what a site had in 2018: a Debian root (debootstrap, 12 here) with the files of the TensorFlow GPU 1.12.0
wheel, about 1 GB, of which one ELF file has 837 MB. It is pushed with skopeo to a docker-registry on this machine.
`tests/end_to_end/real_image.py` builds it, `tests/end_to_end/test_real_image.py` asserts what is shown here.
"""

_STEPS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("TensorFlow 1.12 on Nehalem: it needs AVX, and CUDA libraries that the image lacks", "", "nehalem", ()),
    ("Haswell, Tesla V100, driver 396.44: the CUDA libraries are missing here too", "", "v100", ()),
    ("The same with the CUDA libraries in the image: the wheel's machine code for 7.0 fits", ":cuda", "v100", ()),
    ("Tesla K80: machine code for 3.7 fits too", ":cuda", "k80", ()),
    ("A100, driver 535.104.05: only PTX, compiled at the first start", ":cuda", "a100", ()),
    ("K80, driver 375.51: too old for CUDA 9.0", ":cuda", "k80-old-driver", ("--runtime", "apptainer-nv")),
    ("TensorFlow 1.5 on Nehalem: needs no AVX", ":1.5.0", "nehalem", ()),
)


def main() -> None:
    """Push the images, run the commands, write the page."""
    with tempfile.TemporaryDirectory() as work, start_registry(Path(work) / "registry") as registry:
        directory = Path(work)
        lines = [_INTRODUCTION, "## The hosts", "", "```console"]
        for name, options in HOSTS.items():
            lines.append(f"$ imgcheck probe {shlex.join(options)} -o {name}.json")
            imgcheck("probe", *options, "-o", directory / f"{name}.json")
        lines += ["```", "", *_push(registry)]
        for title, tag, host, options in _STEPS:
            lines += ["", f"## {title}", "", *_check(registry, tag, directory / f"{host}.json", options)]
    text = "\n".join(lines) + "\n"
    TARGET.write_text(re.sub(re.escape(registry.address), "localhost:5000", text))
    print(TARGET)


def _push(registry: Registry) -> list[str]:
    lines = ["## The images", "", "```console"]
    images = (("1.12.0", False, ""), ("1.12.0", True, ":cuda"), ("1.5.0", True, ":1.5.0"))
    for version, complete, tag in images:
        reference = registry.push(tensorflow_layout(version, complete), NAME + tag)
        layout = f"tensorflow-gpu-{version}{':stand-ins' if complete else ''}"
        lines.append(f"$ skopeo copy --dest-tls-verify=false oci:{layout} docker://{reference}")
    return [
        *lines,
        "```",
        "",
        "`:cuda` and `:1.5.0` have stand-ins for CUDA 9.0's libraries: names and versions, no code.",
    ]


def _check(registry: Registry, tag: str, host: Path, options: tuple[str, ...]) -> list[str]:
    reference = f"{registry.address}/{NAME}{tag}"
    done = imgcheck("image", reference, "--host-probe", host, "--plain-http", *options)
    shown = done.stdout.splitlines()
    if len(shown) > _SHOWN:
        shown = [*shown[:_SHOWN], f"[{len(shown) - _SHOWN} more lines]"]
    command = " ".join(["imgcheck image", reference, "--host-probe", host.name, "--plain-http", *options])
    return ["```console", f"$ {command}", *(line.rstrip() for line in shown), f"(exit status {done.returncode})", "```"]


if __name__ == "__main__":
    main()
