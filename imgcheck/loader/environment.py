"""The part of a container's environment that steers the dynamic loader."""

from msgspec import Struct

from imgcheck.documents.image import ImageProfile

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Environment(Struct, frozen=True):
    """Variables as the image's config sets them, split as ld.so splits them."""

    library_path: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    working_directory: str = "/"


def environment_of(image: ImageProfile) -> Environment:
    """The environment of `image`'s processes; PATH falls back to what runtimes set."""
    variables = image.config.variables
    library_path = variables.get("LD_LIBRARY_PATH", "").replace(";", ":")
    return Environment(
        library_path=tuple(library_path.split(":")) if library_path else (),
        preload=tuple(variables.get("LD_PRELOAD", "").replace(":", " ").split()),
        path=tuple(part for part in variables.get("PATH", DEFAULT_PATH).split(":") if part),
        working_directory=image.config.working_directory or "/",
    )
