"""Pure rules: an ImageProfile held against a HostProfile under a runtime."""
