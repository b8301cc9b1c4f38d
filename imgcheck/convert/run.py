"""Converts an image: the targets, each as steps of the same few parts."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imgcheck import sif_format
from imgcheck.convert import archives, bundle, charliecloud, enroot, singularity, udocker
from imgcheck.convert.additions import Additions, add_common
from imgcheck.convert.disk import write_file
from imgcheck.convert.gather import Gathered, gather
from imgcheck.convert.launch import Launch, read_launch, words
from imgcheck.convert.model import Converted, ConvertOptions, Limits
from imgcheck.convert.place import Placer
from imgcheck.convert.policy import Policy
from imgcheck.convert.sif import SifPlan
from imgcheck.convert.squash import Recorder, readable_twice, write_squashfs
from imgcheck.convert.stage import Stage, refuse_existing, staged, sync_filesystem
from imgcheck.convert.store import Store
from imgcheck.convert.targets import TARGETS
from imgcheck.errors import ConvertError, UsageError
from imgcheck.layers.tree import Node
from imgcheck.progress import SILENT, Progress
from imgcheck.sources.model import Image

__all__ = ["ConvertOptions", "Converted", "Limits", "convert"]

_ACCOUNTS_LIMIT = 1 << 20
_CAUSES = {
    errno.ENOSPC: "free space there, or choose a destination on another filesystem",
    errno.EDQUOT: "your quota there is used up: free some, or choose another filesystem",
    errno.EROFS: "choose a destination that can be written",
    errno.EACCES: "choose a destination in a directory that you may write",
    errno.EPERM: "choose a destination in a directory that you may write",
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
    errno.EMLINK: "the filesystem allows fewer links of one file than the image has: choose another",
}


@dataclass(frozen=True)
class Job:
    """One conversion."""

    image: Image
    target: str
    destination: Path
    options: ConvertOptions
    progress: Progress


def convert(
    image: Image,
    target: str,
    destination: Path,
    options: ConvertOptions | None = None,
    progress: Progress = SILENT,
) -> Converted:
    """Write `image` as `target` (a key of TARGETS) to `destination`.

    All or nothing: where this raises, nothing stands at the destination that was not there before, and nothing is
    written anywhere but in a hidden directory beside it. Raises ConvertError where it cannot be written or a limit is
    exceeded, LayerError and DigestError where the image is damaged, UsageError for a target or name that is none.
    """
    if target not in TARGETS:
        raise UsageError(f"there is no target {target!r}", f"choose one of {', '.join(TARGETS)}")
    path = Path.cwd() / os.path.normpath(destination)
    job = Job(image, target, path, options or ConvertOptions(), progress)
    try:
        return _WRITERS[target](job)
    except OSError as error:
        raise _explained(error, path) from error


def check_name(target: str, name: str) -> None:
    """UsageError where `name`, which is asked for, is none that what `target` makes can have."""
    if name and target == "docker-archive":
        archives.asked_name(name)
    if name and target == "udocker":
        udocker.container_name(name, "")


def _explained(error: OSError, destination: Path) -> ConvertError:
    cause = error.strerror or str(error)
    named = f" ({os.fsdecode(error.filename)!r})" if isinstance(error.filename, str | bytes) else ""
    hint = _CAUSES.get(error.errno or 0, "nothing was left at the destination")
    return ConvertError(f"{destination} cannot be written: {cause}{named}", hint)


Add = Callable[[Additions, Launch], None]


class _Tree:
    """An image's merged tree with its contents kept in a stage."""

    def __init__(self, job: Job, stage: Stage, owner_access: bool) -> None:
        self.policy = Policy(owner_access)
        self.store = Store(stage.fd, self.policy)
        try:
            self.gathered = gather(job.image.layers, self.store.keep, job.options.limits, job.progress)
        finally:
            self.store.close()
        self._limits = job.options.limits
        self.launch = read_launch(job.image.config, lambda path: _text(self.gathered, path, self._read))
        self.notes = list(self.launch.notes)

    def _read(self, node: Node) -> bytes | None:
        return b"" if node.payload is None else self.store.read(node.payload, _ACCOUNTS_LIMIT)

    def add(self, job: Job, *adders: Add) -> None:
        self.notes += _add(job, self.gathered, self.launch, *adders)

    def place(self, name: str) -> int:
        """Make the tree as `name` in the stage; the number of its entries."""
        placer = Placer(self.gathered, self.store, self._limits)
        try:
            placer.place(name)
        finally:
            self.store.close()
        self.notes += self.policy.notes()
        return placer.files


def _add(job: Job, gathered: Gathered, launch: Launch, *adders: Add) -> list[str]:
    additions = Additions(gathered.tree, len(job.image.layers), job.options.limits)
    for adder in adders:
        adder(additions, launch)
    return additions.notes


def _text(gathered: Gathered, path: str, read: Callable[[Node], bytes | None]) -> bytes | None:
    node = gathered.tree.lookup(path)
    return read(node) if node is not None and node.kind == "file" else None


def _write_tree(job: Job, command: Callable[[_Tree], str], *adders: Add) -> Converted:
    """A target that is one directory: the tree itself."""
    refuse_existing(job.destination, job.options.force)
    with staged(job.destination.parent) as stage:
        tree = _Tree(job, stage, owner_access=bool(adders))
        tree.add(job, *adders)
        files = tree.place("tree")
        _publish(job, stage, "tree")
        return _converted(job, command(tree), tree.notes, files, tree.store.size)


def _publish(job: Job, stage: Stage, name: str) -> None:
    sync_filesystem(stage.fd)
    stage.publish(name, job.destination, job.options.force)


def _converted(job: Job, command: str, notes: list[str], files: int, size: int) -> Converted:
    return Converted(job.target, job.destination, command, tuple(dict.fromkeys(notes)), files, size)


def _rootfs(job: Job) -> Converted:
    return _write_tree(job, lambda tree: _rootfs_command(tree, job.destination))


def _rootfs_command(tree: _Tree, destination: Path) -> str:
    launch, directory = tree.launch, tree.launch.working_directory
    node = tree.gathered.tree.lookup(directory)
    if node is None or node.kind != "directory":
        tree.notes.append(f"WORKDIR {directory!r} is no directory of the image: Docker makes it at the start")
        directory = "/"
    environment = (f"{name}={value}" for name, value in launch.searchable.items())
    place = (f"--root={destination}", f"--wd={directory}")
    return words(("env", "-i", *environment, "unshare", "--map-root-user", *place, *launch.argv))


def _sandbox(job: Job) -> Converted:
    destination = str(job.destination)
    return _write_tree(
        job,
        lambda tree: singularity.run_command(tree.launch, destination),
        add_common,
        singularity.add_singularity,
    )


def _charliecloud(job: Job) -> Converted:
    def add(additions: Additions, launch: Launch) -> None:
        charliecloud.add_charliecloud(additions, launch, job.image.raw_config)

    destination = str(job.destination)
    return _write_tree(job, lambda tree: charliecloud.run_command(tree.launch, destination), add_common, add)


def _bundle(job: Job) -> Converted:
    refuse_existing(job.destination, job.options.force)
    with staged(job.destination.parent) as stage:
        tree = _Tree(job, stage, owner_access=True)
        tree.add(job, add_common)
        os.mkdir("bundle", dir_fd=stage.fd)
        files = tree.place("bundle/rootfs")
        tree.notes += bundle.notes(tree.launch)
        write_file(stage.fd, "bundle/config.json", bundle.bundle_config(tree.launch))
        _publish(job, stage, "bundle")
        command = bundle.run_command(str(job.destination), udocker.container_name("", job.image.reference))
        return _converted(job, command, tree.notes, files, tree.store.size)


def _udocker(job: Job) -> Converted:
    name = udocker.container_name(job.options.name, job.image.reference)
    repository = job.destination
    existing = udocker.is_repository(repository)
    if existing:
        udocker.refuse_taken(repository, name, job.options.force)
    else:
        refuse_existing(repository, job.options.force)
    with staged(repository if existing else repository.parent) as stage:
        identifier = udocker.new_id()
        tree = _Tree(job, stage, owner_access=True)
        tree.add(job, add_common, lambda additions, _launch: udocker.add_udocker(additions))
        tree.notes += udocker.notes(tree.launch)
        os.mkdir(identifier, dir_fd=stage.fd)
        files = tree.place(f"{identifier}/ROOT")
        write_file(stage.fd, f"{identifier}/container.json", udocker.container_json(tree.launch, job.image.platform))
        write_file(stage.fd, f"{identifier}/imagerepo.name", udocker.image_name(job.image.reference, name))
        sync_filesystem(stage.fd)
        if existing:
            with stage.published(identifier, repository / "containers" / identifier):
                tree.notes += udocker.link_name(repository, name, identifier, job.options.force)
        else:
            _new_repository(job, stage, identifier, name)
        return _converted(job, udocker.run_command(repository, name), tree.notes, files, tree.store.size)


def _new_repository(job: Job, stage: Stage, identifier: str, name: str) -> None:
    os.mkdir("repository", dir_fd=stage.fd)
    for directory in udocker.DIRECTORIES:
        os.mkdir(f"repository/{directory}", dir_fd=stage.fd)
    place = f"repository/containers/{identifier}"
    os.rename(identifier, place, src_dir_fd=stage.fd, dst_dir_fd=stage.fd)
    os.symlink(identifier, f"repository/containers/{name}", dir_fd=stage.fd)
    _publish(job, stage, "repository")


def _sif(job: Job) -> Converted:
    def plan(launch: Launch) -> SifPlan:
        documents = {
            "inspect-metadata.json": singularity.inspect_metadata(launch),
            sif_format.CONFIG_NAME: udocker.config_object(launch),
        }
        return SifPlan(job.image.platform.architecture, documents)

    command = str(job.destination)
    return _write_squashed(
        job, 0o755, plan, lambda launch: singularity.run_command(launch, command), singularity.add_singularity
    )


def _enroot(job: Job) -> Converted:
    return _write_squashed(
        job,
        0o644,
        lambda _launch: None,
        lambda launch: enroot.run_command(launch, str(job.destination)),
        enroot.add_enroot,
    )


def _write_squashed(
    job: Job,
    mode: int,
    plan: Callable[[Launch], SifPlan | None],
    command: Callable[[Launch], str],
    *adders: Add,
) -> Converted:
    """A target that is one file with a squashfs in it."""
    refuse_existing(job.destination, job.options.force)
    with staged(job.destination.parent) as stage:
        layers = readable_twice(job.image.layers, stage)
        recorder = Recorder()
        gathered = gather(layers, recorder.keep, job.options.limits, job.progress)
        launch = read_launch(job.image.config, lambda path: _text(gathered, path, recorder.read))
        notes = list(launch.notes) + _add(job, gathered, launch, add_common, *adders)
        around = plan(launch)
        offset = around.squashfs_offset if around else 0
        files, lost = write_squashfs(stage, "image", offset, layers, gathered, job.progress)
        size = _finish_file(stage, "image", mode, around)
        stage.publish("image", job.destination, job.options.force)
        return _converted(job, command(launch), notes + lost, files, size)


def _finish_file(stage: Stage, name: str, mode: int, around: SifPlan | None) -> int:
    fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=stage.fd)
    try:
        if around:
            around.write(fd)
        os.fchmod(fd, mode)
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _archive(job: Job, write: archives.Write, command: str) -> Converted:
    refuse_existing(job.destination, job.options.force)
    with staged(job.destination.parent) as stage:
        size, notes = write(job.image, stage, "archive", job.options, job.progress)
        _publish(job, stage, "archive")
        return _converted(job, command, notes, len(job.image.layers), size)


def _oci(job: Job) -> Converted:
    name = archives.image_name(job.options.name, job.image.reference)
    return _archive(job, archives.write_layout, words(("podman", "run", f"oci:{job.destination}:{name}")))


def _docker_archive(job: Job) -> Converted:
    load = words(("docker", "load", f"--input={job.destination}"))
    start = words(("docker", "run", archives.tagged_name(job.options.name, job.image.reference)))
    return _archive(job, archives.write_docker_archive, f"{load} && {start}")


_WRITERS: dict[str, Callable[[Job], Converted]] = {
    "sandbox": _sandbox,
    "sif": _sif,
    "udocker": _udocker,
    "charliecloud": _charliecloud,
    "enroot": _enroot,
    "oci-bundle": _bundle,
    "rootfs": _rootfs,
    "oci": _oci,
    "docker-archive": _docker_archive,
}
