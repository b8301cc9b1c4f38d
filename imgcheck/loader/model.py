"""ld.so's search over an image's index: who loads what, from where, and what is missed."""

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.closure import Closure
from imgcheck.loader.injection import Injection
from imgcheck.loader.roots import Roots


def close(
    image: ImageProfile,
    roots: Roots | None = None,
    injection: Injection | None = None,
    levels: tuple[str, ...] = (),
) -> Closure:
    """All that `roots` reach in `image` with `injection` in place, and what the loader misses.

    `roots` None means find_roots(image). `levels` are the glibc-hwcaps directories that the host's CPU opens, best
    first ("x86-64-v3", "x86-64-v2"); empty (unknown) takes the baseline files.
    """
    raise NotImplementedError
