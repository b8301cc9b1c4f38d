"""Puts into the wheel what a preflight has no time to work out, made anew by each build.

That is the parsed form of the rules (imgcheck/knowledge/store.py reads it) and the digest of the loader's model
(imgcheck/loader/code.py).
"""

import binascii
import json
import runpy
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WorkedOut(BuildHookInterface):
    """Hatchling's hook for wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add both files; not for an editable installation, whose rules and code may change."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory(prefix="imgcheck-build-")
        root, made = Path(self.root), Path(self._made.name)
        model = runpy.run_path(str(root / "imgcheck/loader/code.py"))
        texts = {
            "imgcheck/rules/parsed.json": parsed(root / "rules"),
            f"imgcheck/loader/{model['RECORD']}": model["of_files"](),
        }
        for place, text in texts.items():
            target = made / Path(place).name
            target.write_text(text, encoding="utf-8")
            build_data["force_include"][str(target)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Drop them once they are in the wheel."""
        if version != "editable":
            self._made.cleanup()


def parsed(rules: Path) -> str:
    """JSON of each TOML file below `rules`: its path there to the CRC-32 of its bytes and its table."""
    tables = {}
    for path in sorted(rules.rglob("*.toml")):
        data = path.read_bytes()
        tables[path.relative_to(rules).as_posix()] = [binascii.crc32(data), tomllib.loads(data.decode("utf-8"))]
    return json.dumps(tables, ensure_ascii=False, separators=(",", ":"))
