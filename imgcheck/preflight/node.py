"""What tells one state of a node from another: a probe, and every answer built on it, is good for one state."""

import os

_BOOT = "/proc/sys/kernel/random/boot_id"
_DRIVER = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version", "/sys/module/amdgpu/version")
_DEVICES = (
    "/proc/driver/nvidia/gpus", "/sys/class/kfd/kfd/topology/nodes", "/sys/class/infiniband", "/sys/class/cxi",
)  # fmt: skip
"""Directories that a probe lists: drivers are loaded, and cards fail, while a node runs."""
_LOADER_CACHE = "/etc/ld.so.cache"
_SEARCHED = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH": ""}
"""Variables whose directories a probe looks into, with what stands for an unset one."""
_GPUS = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
    "GPU_DEVICE_ORDINAL",
)  # fmt: skip
"""NVML shows the GPUs that the job's control group allows: another allocation is another host."""


def state() -> str:
    """The node's boot, drivers, devices, library and program directories and GPU allocation as text without NUL.

    Installing a driver rewrites /etc/ld.so.cache, installing a runtime renews the time of a directory in PATH.
    """
    system = os.uname()
    parts = [system.nodename, system.release, _text(_BOOT), *map(_text, _DRIVER), identity(_LOADER_CACHE)]
    parts += map(_names, _DEVICES)
    for name, unset in _SEARCHED.items():
        directories = os.environ.get(name, unset).split(":")
        parts += [f"{directory} {identity(directory)}" for directory in directories if directory]
    parts += [f"{name}={os.environ.get(name)}" for name in _GPUS]
    return "\n".join(parts).replace("\0", "")


def identity(path: str) -> str:
    """What changes when the file or directory at `path` is written or replaced; "absent" where there is none."""
    try:
        return told(os.stat(path))
    except (OSError, ValueError):
        return "absent"


def told(status: os.stat_result) -> str:
    """`identity` of the file that has this status."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _names(directory: str) -> str:
    try:
        return " ".join(sorted(os.listdir(directory)))
    except OSError:
        return "absent"


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("utf-8", "replace").strip()
    except OSError:
        return "absent"
