"""Profiles of images that hold one file."""

import io

from imgcheck.documents.image import ImageConfig, ImageProfile, LayerInfo, Platform
from imgcheck.layers.stream import TarLayer
from imgcheck.profile.build import build_profile
from imgcheck.profile.store import Store
from imgcheck.progress import SILENT
from imgcheck.sources.model import Image
from tests.layers.layouts import archive, digest_of, file


def profile_of(data: bytes, name: str, store: Store | None = None) -> ImageProfile:
    layer = archive([file(name, data)])
    return of_layer(TarLayer(LayerInfo(diff_id=digest_of(layer)), lambda: io.BytesIO(layer)), store)


def of_layer(layer: TarLayer, store: Store | None) -> ImageProfile:
    return build_profile(Image("test", Platform(), ImageConfig(), (layer,)), SILENT, store)


def found(data: bytes, name: str) -> list[str]:
    return [record.path for record in profile_of(data, name).files]


def refusal(data: bytes, name: str) -> str:
    """Why a file was not looked into, which stands in the profile in place of what it holds."""
    profile = profile_of(data, name)
    assert [record.path for record in profile.files] == [f"/{name}"]
    return profile.unreadable[f"/{name}"]
