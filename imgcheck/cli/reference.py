"""The ImageProfile of what the user named: a document is read, anything else is opened and analysed."""

import argparse
import sys
from pathlib import Path

from imgcheck.cli.options import source_options, store
from imgcheck.cli.progress import progress
from imgcheck.documents import ImageProfile, decode
from imgcheck.documents.codec import kind_of
from imgcheck.report.text import safe


def profile_of(arguments: argparse.Namespace) -> ImageProfile:
    """The profile of `arguments.reference`. Raises ImgcheckError where it cannot be had."""
    stored = _stored_profile(arguments.reference)
    if stored is not None:
        return stored
    from imgcheck.profile.build import build_profile
    from imgcheck.sources.open import open_image

    kept = store(arguments)
    with (
        progress(arguments.quiet) as shown,
        open_image(arguments.reference, source_options(arguments), shown) as image,
    ):
        profile = build_profile(image, shown, kept)
    if kept and kept.trouble:
        print(f"imgcheck: note: {safe(kept.trouble)}", file=sys.stderr)
    return profile


def _stored_profile(reference: str) -> ImageProfile | None:
    path = Path(reference)
    if ("/" not in reference and "." not in reference) or not path.is_file():
        return None
    with path.open("rb") as file:
        # Archives of many GB lie at such paths too; a profile begins with its kind.
        if not file.read(64).lstrip().startswith(b"{"):
            return None
        file.seek(0)
        data = file.read()
    return decode(data, ImageProfile, reference) if kind_of(data) else None
