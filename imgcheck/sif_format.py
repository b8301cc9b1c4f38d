"""SIF, the single-file format of Apptainer and Singularity, version 01: a header, descriptors, and data objects.

Little-endian and packed (github.com/sylabs/sif, pkg/sif). As it is written here: a header of 128 bytes at 0; 48
descriptors of 585 bytes from 4096 on; data from 32176 on.
"""

import struct

HEADER = struct.Struct("<32s10s3s3s16s8q")
"""Launch line, magic, version, architecture, UUID; times of making and changing, free and all descriptors, where these
start and how long they are, where the data start and how long they are."""
DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
"""Kind, whether it is used, number, group, link; offset, size, size with padding; times and owners; name, extra."""
PARTITION = struct.Struct("<ii3s")
"""The extra field of a partition: filesystem, use, architecture."""
JSON = struct.Struct("<ii")
"""The extra field of a JSON object: what it is about, and its version."""

MAGIC_AT, MAGIC = 32, b"SIF_MAGIC\0"
VERSION = b"01"
IS_PARTITION, IS_JSON = 0x4004, 0x4006
BARE_SQUASHFS = b"hsqs"
SQUASHFS = 1
OTHER_FILESYSTEMS = {
    2: "ext3", 3: "an archive", 4: "a raw device", 5: "an encrypted squashfs", 6: "encrypted by gocryptfs",
}  # fmt: skip
SYSTEM, PRIMARY_SYSTEM, OVERLAY = 1, 2, 4
ARCHITECTURES = {
    b"01": "386", b"02": "amd64", b"03": "arm", b"04": "arm64", b"05": "ppc64", b"06": "ppc64le", b"07": "mips",
    b"08": "mipsle", b"09": "mips64", b"10": "mips64le", b"11": "s390x", b"12": "riscv64", b"13": "loong64",
}  # fmt: skip
"""GOARCH names by code."""
CODES = {name: code for code, name in ARCHITECTURES.items()}
UNKNOWN = b"00"
CONFIG_NAME = "oci-config.json"
"""The data object with the config of the image that the file was made of."""


def bare_squashfs_at(head: bytes) -> int:
    """Where in a file that begins with `head`, and is no SIF, a squashfs begins if it is one.

    Singularity 2.4 to 2.6 put a line before it that starts it, `#!/usr/bin/env run-singularity` (LAUNCH_STRING in
    their source; _singularity_image_squashfs_init looks for the squashfs behind it).
    """
    return head.find(b"\n") + 1 if head.startswith(b"#!") else 0
