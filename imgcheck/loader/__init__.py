"""A pure model of the dynamic loader over a tree's index; executes nothing and reads no file.

    roots = find_roots(image, command, entries)            what runs (loader/roots.py)
    injection = injection_for(runtime, host, image)        what the runtime brings in (loader/injection.py)
    closure = close(image, roots, injection, levels)       what is reached, found and missed (loader/model.py)

`Loader(image).close(roots, injection, levels)` is the same and keeps its indexes between runtimes and hosts.

`Closures(image, command, entries, levels)` is for checks: what a profile keeps of that work (loader/kept.py) is taken
from there.
"""
