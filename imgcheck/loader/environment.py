"""The part of a container's environment that steers the dynamic loader."""

from msgspec import Struct, structs

from imgcheck.documents.image import ImageConfig, ImageProfile

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

LOADER_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
"""Those by which ld.so is told where libraries are (ld.so(8))."""
GIVEN = "$LD_LIBRARY_PATH"
"""Stands among the directories of LD_LIBRARY_PATH for what the runtime adds to the image's (`apptainer exec --nv`)."""


class Environment(Struct, frozen=True):
    """Variables as the image's config sets them, split as ld.so splits them."""

    library_path: tuple[str, ...] = ()
    keeps_given: bool = True
    """What the runtime adds to it reaches the program."""
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    working_directory: str = "/"


def path_of(config: ImageConfig) -> tuple[str, ...]:
    """The directories of PATH, which falls back to what runtimes set."""
    return tuple(part for part in config.variables.get("PATH", DEFAULT_PATH).split(":") if part)


def environment_of(image: ImageProfile) -> Environment:
    """The environment of `image`'s processes."""
    variables = image.config.variables
    own = Environment(path=path_of(image.config), working_directory=image.config.working_directory or "/")
    library_path, preload = (variables.get(name, "") for name in LOADER_VARIABLES)
    return with_loader_variables(own, (given_with(library_path), preload))


def given_with(library_path: str) -> str:
    """LD_LIBRARY_PATH as the image has it, and what the runtime adds."""
    return f"{library_path}:{GIVEN}" if library_path else GIVEN


def with_directory(environment: Environment, directory: str) -> Environment:
    """The same with `directory` before the others in LD_LIBRARY_PATH."""
    return structs.replace(environment, library_path=(directory, *environment.library_path))


def with_loader_variables(environment: Environment, values: tuple[str, ...]) -> Environment:
    """The same with other values of LOADER_VARIABLES."""
    library_path, preload = values
    directories = library_path.replace(";", ":").split(":") if library_path else []
    return structs.replace(
        environment,
        library_path=tuple(directory for directory in directories if directory != GIVEN),
        keeps_given=GIVEN in directories,
        preload=tuple(preload.replace(":", " ").split()),
    )
