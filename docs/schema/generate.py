"""Writes the JSON Schemas of the documents beside this file: `make schema`."""

import json
from pathlib import Path

from imgcheck.documents import HostProfile, ImageProfile, Report, json_schema

HERE = Path(__file__).resolve().parent
DOCUMENTS = {"image": ImageProfile, "host": HostProfile, "report": Report}


def schema(kind: str) -> str:
    """The text of a schema file."""
    return json.dumps(json_schema(DOCUMENTS[kind]), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for kind in DOCUMENTS:
        (HERE / f"{kind}.json").write_text(schema(kind))
