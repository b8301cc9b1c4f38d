"""The hosts that the real image is held against, as `imgcheck probe` describes them."""

from pathlib import Path

from tests.end_to_end.command import imgcheck

HOSTS: dict[str, tuple[str, ...]] = {
    "nehalem": ("--cpu", "nehalem", "--gpu", "Tesla K80", "--driver", "396.44", "--glibc", "2.17", "--kernel", "3.10"),
    "v100": ("--cpu", "haswell", "--gpu", "Tesla V100-SXM2-16GB", "--driver", "396.44", "--glibc", "2.17",
             "--kernel", "3.10"),
    "k80": ("--cpu", "haswell", "--gpu", "Tesla K80", "--driver", "396.44", "--glibc", "2.17", "--kernel", "3.10"),
    "k80-old-driver": ("--cpu", "haswell", "--gpu", "Tesla K80", "--driver", "375.51", "--glibc", "2.17",
                       "--kernel", "3.10"),
    "a100": ("--cpu", "zen2", "--gpu", "A100-SXM4-40GB", "--driver", "535.104.05", "--glibc", "2.28",
             "--kernel", "4.18"),
}  # fmt: skip


def describe(directory: Path) -> dict[str, Path]:
    """A host file for each of HOSTS."""
    files = {name: directory / f"{name}.json" for name in HOSTS}
    for name, file in files.items():
        assert imgcheck("probe", *HOSTS[name], "-o", file).returncode == 0
    return files
