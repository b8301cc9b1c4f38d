"""Schemas of the catalogue and of the runtimes: unknown keys are errors, so that a typo cannot pass."""

from typing import Literal

from msgspec import Struct


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every entry of rules/."""


class Catalogued(Data, frozen=True):
    """A rule as people read it. Texts may hold `{placeholders}` that the check fills."""

    id: str
    title: str
    predicted_error: str
    why: str
    remedy: str
    sources: tuple[str, ...]
    description: str = ""
    """For `explain`: when the rule fires, when it does not, and its limits."""
    variants: dict[str, str] = {}
    """Other error texts by condition, named by the check that chooses among them."""


Order = Literal[
    "", "ld-library-path-first", "ld-library-path-last", "ld-so-conf-first", "default-directory", "image-path",
    "image-first",
]  # fmt: skip


class RuntimeChange(Data, frozen=True):
    """What another version of the same runtime does otherwise; which one is installed is a fact of the host."""

    since: str
    """First version that does so."""
    note: str
    order: Order = ""
    """Replaces Runtime.order where given."""
    enforces_require: Literal["", "never"] = ""
    """`never`: Runtime.enforces_require no longer holds."""


class Family(Data, frozen=True):
    """What all runtimes of one family do alike, a site's own ones as well (rules/runtimes/*.toml, `[[family]]`)."""

    id: str
    sources: tuple[str, ...]
    working_directory_option: str = ""
    """What a user passes so that it enters the image's WORKDIR, as `{directory}`; empty: it does by itself."""
    takes_backticks_since: dict[str, str] = {}
    """Those of its programs that make the image's ENV into a script, and the first version of each in which a backtick
    does not break it."""
    filtering_program: str = ""
    """The program that brings the default seccomp filter of all of them,"""
    lets_pass_since: dict[str, str] = {}
    """and its first version that lets a system call pass; before, it answers EPERM, and no C library falls back."""
    owns_directory: str = ""
    """Directory of the image that it takes for its own, whose scripts it runs if they are there."""
    runs_as_caller: bool = False
    """Programs run as the user who starts it, whom the files of an image do not belong to."""
    preloads: bool = False
    """It may put a library of its own between the program and the C library."""
    disable_require: Literal["true", "filled", "set"] = "true"
    """What of NVIDIA_DISABLE_REQUIRE counts as yes: one of Go's words for true, any text, or its being there."""


class Runtime(Data, frozen=True):
    """How one container runtime changes what the image finds."""

    id: str
    title: str
    sources: tuple[str, ...]
    started: str = ""
    """What its user types: "docker run --gpus all"."""
    with_driver: str = ""
    """The entry for the same runtime started so that it injects the driver, for one that does not."""
    family: Literal["docker", "podman", "apptainer", "udocker", "charliecloud", "shifter", "sarus", "enroot"] = "docker"
    programs: tuple[str, ...] = ()
    """Programs in PATH that tell that the runtime is installed; all must be there. The last one's version decides."""
    gpu: bool = False
    """The container can open the host's NVIDIA devices at all."""
    injects_driver: bool = False
    """Host driver libraries come into the container."""
    libraries: tuple[str, ...] = ()
    """Globs of sonames that are injected from the host: "libcuda.so*"."""
    directory: str = ""
    """Where the libraries lie inside the container; `{libdir}` is the distribution's multiarch directory."""
    order: Order = ""
    """How the loader comes to them: before or after what LD_LIBRARY_PATH of the image names, through ldconfig, or
    because they lie in a default directory; `image-path`: only where the image's own LD_LIBRARY_PATH or ld.so.conf
    names `directory`; `image-first`: after every directory of the image's LD_LIBRARY_PATH, or where it sets none,
    after all that its ld.so.conf and the defaults name."""
    ldconfig: bool = False
    """Runs ldconfig in the container, so the image's ld.so.cache is rebuilt with the injected files."""
    requires_environment: dict[str, str] = {}
    """Variables that the image must set for the driver to be injected at all, with what happens otherwise."""
    excluding_environment: dict[str, str] = {}
    """Variables that an image need not set, but by whose value it may keep the driver out, with what happens then.
    Where `enforces_require` is `legacy-hook`, only in that mode."""
    serves_legacy_images: bool = False
    """An image of nvidia-docker 1, which has CUDA_VERSION and no NVIDIA_REQUIRE_CUDA, gets the whole driver."""
    enforces_require: Literal["", "legacy-hook", "always"] = ""
    """Whether NVIDIA_REQUIRE_* of the image is evaluated; `legacy-hook` only where that mode is configured."""
    applies_compat: bool = False
    """Activates cuda-compat of the image when the host's driver calls for it."""
    minimum_driver: str = ""
    """Oldest driver that the runtime itself accepts."""
    changes: tuple[RuntimeChange, ...] = ()
    """Newest first. Other versions behave otherwise, and images that ran before an upgrade do not after it."""
    environment_option: str = ""
    """What its user passes so that `requires_environment` is met without the image: "--gpus all". Empty where only
    the image, or what the site configures, can meet it."""
    requires_labels: dict[str, str] = {}
    """Labels that the image must carry for the driver to be injected, with what happens otherwise."""
    cuda_label: str = ""
    """Label whose CUDA version the runtime holds against the driver's, and refuses what is newer."""
    requires_directories: tuple[str, ...] = ()
    """Directories without which it cannot start the container."""
    requires_files: tuple[str, ...] = ()
    """Files without which it cannot start the container."""
    requires_one_directory: tuple[str, ...] = ()
    """Directories of which the image must have one, since the driver's libraries are placed there."""
    makes_directories: tuple[str, ...] = ()
    """Directories that it mounts over, and makes in a layer above the image where that lacks them and it may."""
    refuses_files: tuple[str, ...] = ()
    """Files of the image beside which it places no driver unless it is forced to. The same holds for those of
    `libraries` in the directory that it chooses among `requires_one_directory`."""
    skips_entrypoint: bool = False
    """The words of a user may start without the image's entrypoint (`apptainer exec`)."""
    requires_working_directory: bool = False
    """Refuses an image whose WORKDIR (without one: the user's home) does not exist in it."""
    user_syntax: str = ""
    """Regular expression of the values of USER that it understands; empty where all are."""
    injects_on: tuple[str, ...] = ()
    """Architectures on which it injects the driver; empty: all."""
    notes: tuple[str, ...] = ()

    @property
    def asked_paths(self) -> tuple[str, ...]:
        """Paths of the image, and globs of names in a directory, of which it matters under it whether they exist."""
        placed = (self.directory,) if self.directory.startswith("/") else ()
        beside = (f"{directory}/{name}" for directory in self.requires_one_directory for name in self.libraries)
        listed = (self.requires_directories, self.requires_files, self.requires_one_directory, self.makes_directories)
        return (*(path for paths in listed for path in paths), *self.refuses_files, *placed, *beside)
