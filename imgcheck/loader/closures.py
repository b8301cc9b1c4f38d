"""The closures of an image on one host: as its profile keeps them, else worked out by the model.

Imports the model only where it is needed: for another command than the image's own, where a runtime injects the
driver, which changes some of what is kept, and for a profile that was made without it or by another version.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import ImageProfile
from imgcheck.knowledge.types import Runtime
from imgcheck.loader.closure import Closure, Roots
from imgcheck.loader.injection import injection_for
from imgcheck.loader.kept import kept_work

if TYPE_CHECKING:
    from imgcheck.loader.model import Loader
    from imgcheck.loader.outcomes import Outcome


class Closures:
    """What `command` (None: the image's own) and `entries` reach under each runtime.

    `levels` as hwcaps_of has them, `bare` as find_roots has it.
    """

    def __init__(
        self,
        image: ImageProfile,
        command: tuple[str, ...] | None = None,
        entries: tuple[str, ...] = (),
        levels: tuple[str, ...] = (),
        bare: bool = True,
    ) -> None:
        self._image, self._command, self._entries, self._levels = image, command, entries, levels
        self._bare = bare
        self._kept = kept_work(image, levels) if command is None and not entries else None

    @cached_property
    def roots(self) -> Roots:
        """What runs."""
        if self._kept:
            return self._kept.roots
        from imgcheck.loader.roots import find_roots

        return find_roots(self._image, self._command, self._entries, self._bare)

    def under(self, runtime: Runtime, host: HostProfile) -> Closure:
        """What it reaches as `runtime` starts it on `host`."""
        injection = injection_for(runtime, host, self._image)
        return self._alone if injection is None else self._loader.under(injection)

    @cached_property
    def _alone(self) -> Closure:
        if self._kept is None:
            return self._loader.close()
        return self._kept.closure or self._loader_with(None).close()

    @cached_property
    def _loader(self) -> "Loader":
        from imgcheck.loader.outcomes import unpacked

        return self._loader_with(unpacked(self._image, self._kept.loads) if self._kept else None)

    def _loader_with(self, outcomes: "list[Outcome] | None") -> "Loader":
        from imgcheck.loader.model import Loader

        return Loader(self._image, self.roots, self._levels, outcomes)
