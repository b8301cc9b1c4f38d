"""Imports msgspec without what its import brings along and documents never ask for: a preflight has no time for it.

That are its writers of schemas, TOML and YAML, and the modules of types that no document has: `uuid` and `decimal`,
which load libraries of the system. An eighth of the instructions of a preflight.
"""

import sys
from types import ModuleType
from typing import Any

_UNUSED = ("decimal", "uuid", "msgspec.inspect", "msgspec._json_schema", "msgspec.toml", "msgspec.yaml")


class _Unused(ModuleType):
    """Stands for a module while others import names of it that nothing will be an instance of."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"unknown": None})  # which uuid.SafeUUID has


def import_msgspec() -> None:
    """Import it with stand-ins in place of these modules, which whoever asks for them later gets as they are."""
    import _datetime  # type: ignore[import-not-found]  # the types of `datetime`, which has them in Python once more

    stand_ins: dict[str, ModuleType | None] = {name: _Unused(name) for name in _UNUSED} | {"datetime": _datetime}
    # It asks for this twice, and goes on with `typing` where there is none: each search reads directories.
    stand_ins["typing_extensions"] = None
    mine = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(mine)  # type: ignore[arg-type]  # None says that there is none (importlib._bootstrap)
    try:
        import msgspec  # noqa: F401
    finally:
        for name in mine:
            del sys.modules[name]
