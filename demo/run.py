"""`make demo`: checks the bundled image against this machine and against a described Broadwell node.

The image was built with -march=skylake-avx512. It runs where the CPU has AVX-512 and dies elsewhere.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

IMAGE = f"oci:{Path(__file__).resolve().parent.relative_to(Path.cwd())}/skylake512"
TROUBLE = 2


def main() -> int:
    """Run the commands that a user would type; only trouble of the tool itself fails the demo."""
    with tempfile.TemporaryDirectory() as directory:
        broadwell = f"{directory}/broadwell.json"
        worst = max(
            _show("image", IMAGE, "--host-probe"),
            _show("probe", "--cpu", "broadwell", "--gpu", "none", "--driver", "none", "--kernel", "4.15", "--glibc",
                  "2.27", "-o", broadwell),
            _show("image", IMAGE, "--host-probe", broadwell),
        )  # fmt: skip
    print("\nThe command is .venv/bin/imgcheck; `imgcheck --help` tells more.")
    return TROUBLE if worst == TROUBLE else 0


def _show(*arguments: str) -> int:
    print(f"\n$ imgcheck {' '.join(arguments)}", flush=True)
    status = subprocess.run([Path(sys.executable).with_name("imgcheck"), *arguments]).returncode
    print(f"(exit status {status})", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
