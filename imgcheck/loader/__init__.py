"""A pure model of the dynamic loader over a tree's index: executes nothing, and reads no file but its own code's.

    roots = find_roots(image, command, entries)            what runs (loader/roots.py)
    closure = close(image, roots, levels)                  what is reached, found and missed (loader/model.py)

What a runtime brings in (loader/injection.py) may be None; a Loader keeps its indexes between runtimes and hosts:

    injection = injection_for(runtime, host, image)
    loader = Loader(image, roots, levels)
    closure = loader.under(injection)
    closure = loader.close()

`Closures(image, command, entries, levels)` is for checks: what a profile keeps of that work (loader/kept.py), where the
same code has done it (loader/code.py), is taken from there.
"""
