"""The targets of `convert`, in the order in which they are shown."""

TARGETS: dict[str, str] = {
    "sandbox": "directory for Apptainer and Singularity",
    "sif": "single file for Apptainer and Singularity",
    "udocker": "container in an udocker repository, a new or an existing one",
    "charliecloud": "directory for ch-run",
    "enroot": "squashfs for enroot and pyxis",
    "oci-bundle": "directory for runc, crun and srun --container",
    "rootfs": "the image's file tree and nothing else",
    "oci": "OCI layout with the image's layers as they are",
    "docker-archive": "file for docker load and podman load",
}
