"""The part of a container's environment that steers the dynamic loader."""

from msgspec import Struct, structs

from imgcheck.documents.image import ImageProfile

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LOADER_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
"""Those by which ld.so is told where libraries are (ld.so(8))."""


class Environment(Struct, frozen=True):
    """Variables as the image's config sets them, split as ld.so splits them."""

    library_path: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    working_directory: str = "/"


def environment_of(image: ImageProfile) -> Environment:
    """The environment of `image`'s processes; PATH falls back to what runtimes set."""
    variables = image.config.variables
    own = Environment(
        path=tuple(part for part in variables.get("PATH", DEFAULT_PATH).split(":") if part),
        working_directory=image.config.working_directory or "/",
    )
    return with_loader_variables(own, tuple(variables.get(name, "") for name in LOADER_VARIABLES))


def with_loader_variables(environment: Environment, values: tuple[str, ...]) -> Environment:
    """The same with other values of LOADER_VARIABLES."""
    library_path, preload = values
    return structs.replace(
        environment,
        library_path=tuple(library_path.replace(";", ":").split(":")) if library_path else (),
        preload=tuple(preload.replace(":", " ").split()),
    )
