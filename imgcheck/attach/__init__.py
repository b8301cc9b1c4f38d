"""Attach: what is known of an image, kept beside it in its registry as an OCI artifact that refers to it."""
