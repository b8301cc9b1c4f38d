"""Static compatibility analysis and conversion of container images."""

__version__ = "0.1.0"
