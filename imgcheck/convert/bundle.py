"""An OCI runtime bundle (runtime-spec 1.0, bundle.md and config.md): `rootfs/` and a config for a rootless runtime."""

import json
import os
from typing import Any

from imgcheck.convert.launch import Launch, words

_NO_DEVICES = ["nosuid", "noexec", "nodev"]
_MOUNTS: tuple[dict[str, Any], ...] = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
    },
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*_NO_DEVICES, "mode=1777"]},
    {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": _NO_DEVICES},
    # A new sysfs needs a network namespace of one's own; a batch job keeps the host's network.
    {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", *_NO_DEVICES, "ro"]},
)
_NAMESPACES = ("pid", "ipc", "uts", "mount", "user")


def bundle_config(launch: Launch) -> bytes:
    """config.json for whoever converts: one id of the host, which runtimes want to see as root inside."""
    environment = {"HOME": launch.home, **launch.searchable}
    document = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(launch.argv),
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": launch.working_directory,
            "noNewPrivileges": True,
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "ambient")},
        },
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "container",
        "mounts": list(_MOUNTS),
        "annotations": dict(launch.labels),
        "linux": {
            "namespaces": [{"type": kind} for kind in _NAMESPACES],
            "uidMappings": [{"containerID": 0, "hostID": os.geteuid(), "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": os.getegid(), "size": 1}],
        },
    }
    return json.dumps(document, indent=1).encode()


def notes(launch: Launch) -> list[str]:
    """What a rootless bundle cannot keep."""
    if launch.uid == 0:
        return []
    return [f"without root there is one user in the container, root, which is you outside: USER {launch.user!r} is not"]


def run_command(destination: str, name: str) -> str:
    return words(("runc", "run", "--bundle", destination, name))
