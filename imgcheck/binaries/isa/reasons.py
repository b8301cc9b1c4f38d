"""Reasons that the engines of all machines give for an answer."""

AT_LOAD = "Reached at load or start without a test of the CPU on the way."
NAMED = "Reached at load or start without a visible test of the CPU, though by its name it is one version of several."
