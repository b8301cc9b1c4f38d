"""Where an image comes from: registry, OCI layout, archives, directory. Each yields the same Image."""
