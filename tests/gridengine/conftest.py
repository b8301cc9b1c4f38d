"""The site of the Slurm tests: an installation for every user, images with profiles, described nodes."""

from tests.slurm.conftest import site

__all__ = ["site"]
