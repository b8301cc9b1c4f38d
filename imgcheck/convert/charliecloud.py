"""`ch/`: how Charliecloud finds an image's environment and config."""

from imgcheck.convert.additions import Additions
from imgcheck.convert.launch import Launch, words
from imgcheck.documents.codec import as_bytes


def add_charliecloud(additions: Additions, launch: Launch, raw_config: bytes) -> None:
    """Write `ch/environment`, which `ch-run --set-env` reads, and the config beside it."""
    additions.directory("ch")
    additions.file("ch/environment", environment(launch))
    additions.file("ch/metadata.json", raw_config or b"{}")
    unfit = [name for name, value in launch.environment.items() if "\n" in value or "\n" in name]
    if unfit:
        additions.notes.append(
            f"ENV {', '.join(unfit)} is left out: a line of ch/environment holds one variable, whole"
        )
    if launch.user not in ("", "root", "0"):
        additions.notes.append(f"Charliecloud runs it as you, not as USER {launch.user!r}")


def environment(launch: Launch) -> bytes:
    """NAME='value' lines. ch-run strips one pair of single quotes, and expands nothing where it is told not to."""
    lines = [f"{name}='{value}'\n" for name, value in launch.searchable.items() if "\n" not in name + value]
    return as_bytes("".join(lines))


def run_command(launch: Launch, destination: str) -> str:
    """The command that starts it: ch-run knows neither ENTRYPOINT nor WORKDIR by itself."""
    place = f"--cd={launch.working_directory}"
    return words(("ch-run", "--unset-env=*", "--env-no-expand", "--set-env", place, destination, "--", *launch.argv))
