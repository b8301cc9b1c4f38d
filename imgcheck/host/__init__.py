"""Probes of the machine, and descriptions of another, to a HostProfile."""
