"""Puts the parsed form of the rules into the wheel (imgcheck/knowledge/store.py reads it), made anew by each build."""

import binascii
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParsedRules(BuildHookInterface):
    """Hatchling's hook for wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add imgcheck/rules/parsed.json; not for an editable installation, whose rules may change."""
        if version != "editable":
            target = Path(tempfile.mkdtemp(prefix="imgcheck-build-")) / "parsed.json"
            target.write_text(parsed(Path(self.root) / "rules"), encoding="utf-8")
            build_data["force_include"][str(target)] = "imgcheck/rules/parsed.json"


def parsed(rules: Path) -> str:
    """JSON of each TOML file below `rules`: its path there to the CRC-32 of its bytes and its table."""
    tables = {}
    for path in sorted(rules.rglob("*.toml")):
        data = path.read_bytes()
        tables[path.relative_to(rules).as_posix()] = [binascii.crc32(data), tomllib.loads(data.decode("utf-8"))]
    return json.dumps(tables, ensure_ascii=False, separators=(",", ":"))
