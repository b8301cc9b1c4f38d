"""Media types and annotations of images (OCI image-spec, media-types.md and annotations.md; Docker's manifest v2)."""

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
"""Of a layer that is not compressed."""
ENCRYPTED = "+encrypted"
"""What the type of a layer that ocicrypt has encrypted ends in (github.com/containers/ocicrypt, docs)."""
EMPTY = "application/vnd.oci.empty.v1+json"

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_MANIFEST_1 = "application/vnd.docker.distribution.manifest.v1"
"""What the types of Docker's first schema begin with."""

MANIFEST_TYPES = (MANIFEST, DOCKER_MANIFEST)
INDEX_TYPES = (INDEX, DOCKER_LIST)
CONFIG_TYPES = (CONFIG, DOCKER_CONFIG)

REF_NAME = "org.opencontainers.image.ref.name"
"""Annotation of a layout's index that tags an image."""
IMAGE_NAME = "io.containerd.image.name"
"""Full name that containerd and docker 25 and later write there; the other one then holds the tag alone."""
CREATED = "org.opencontainers.image.created"
TITLE = "org.opencontainers.image.title"
