"""Writes the JSON Schemas of the documents and of imgcheck.toml beside this file: `make schema`."""

import ast
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

import msgspec

from imgcheck import documents
from imgcheck.documents import HostProfile, ImageProfile, Report, json_schema
from imgcheck.knowledge import Knowledge
from imgcheck.policy import document as policy

HERE = Path(__file__).resolve().parent
DOCUMENTS = {"image": ImageProfile, "host": HostProfile, "report": Report}
TITLES = {"image": "Profile of an image", "host": "Profile of a host", "report": "Report of imgcheck"}
MODULES = (documents.facts, documents.host, documents.image, documents.report)


def schema(kind: str) -> str:
    """The text of a schema file: one of DOCUMENTS, or `policy`."""
    made = policy_schema() if kind == "policy" else document_schema(kind)
    made |= {"$id": f"urn:imgcheck:schema:{kind}"}
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def document_schema(kind: str) -> dict[str, Any]:
    """JSON Schema of a document, with what the source says of each key."""
    made = json_schema(DOCUMENTS[kind])
    types = {name: found for module in MODULES for name, found in vars(module).items() if isinstance(found, type)}
    for name, part in made["$defs"].items():
        for key, said in _described(types[name]).items() if name in types else ():
            if key in part.get("properties", ()):
                part["properties"][key]["description"] = said
    return made | {"title": TITLES[kind]}


def policy_schema() -> dict[str, Any]:
    """JSON Schema of imgcheck.toml, with what the source says of each key, for editors that complete and check TOML."""
    made = json_schema(policy.Policy)
    parts = made["$defs"]
    for part in (policy.Policy, policy.RequiredHost, policy.Waiver):
        for key, said in _described(part).items():
            parts[part.__name__]["properties"][key]["description"] = said
    knowledge = Knowledge()
    # Hints, no limits: a site brings more runtimes and rules with --rules.
    for part in ("Policy", "RequiredHost"):
        parts[part]["properties"]["runtimes"]["items"]["examples"] = list(knowledge.runtimes)
    parts["Waiver"]["properties"]["rule"]["examples"] = sorted(knowledge.catalogue)
    parts["Waiver"]["properties"]["reason"]["pattern"] = r"\S"
    parts["Policy"]["properties"]["severity"]["propertyNames"] = {"examples": sorted(knowledge.catalogue)}
    return made | {"title": policy.FILE}


def _described(part: type[msgspec.Struct]) -> dict[str, str]:
    """Attribute to the string below it in the source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    said = {}
    for attribute, below in zip(body.body, body.body[1:], strict=False):
        match attribute, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                said[name] = " ".join(text.split())
    return said


if __name__ == "__main__":
    for kind in (*DOCUMENTS, "policy"):
        (HERE / f"{kind}.json").write_text(schema(kind))
