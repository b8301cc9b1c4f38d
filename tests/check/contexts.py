"""Contexts for rules: images of a few files, described hosts, and closures that say how each file is reached."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from imgcheck.check import libraries
from imgcheck.check.context import Answers, Context
from imgcheck.documents.facts import CodeFacts, GpuCode, GpuModule, Isa, IsaUse, Linkage, Refusal
from imgcheck.documents.host import HostProfile
from imgcheck.documents.image import Component, FileRecord, ImageConfig, ImageProfile, LayerInfo, Platform, TreeIndex
from imgcheck.documents.report import Finding
from imgcheck.host.describe import describe_host
from imgcheck.knowledge import Knowledge
from imgcheck.loader.closure import Closure, Roots
from imgcheck.loader.glibc import is_libc
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots

KNOWLEDGE = Knowledge()
LAYER = LayerInfo(diff_id="sha256:0", history="RUN pip install tensorflow-gpu")


def use(feature: str, answer: str = "required", **values) -> IsaUse:
    given = {"reason": f"uses {feature}", "text": f"insn of {feature}", "address": 0x1234, "function": "main"}
    return IsaUse(feature, answer, **(given | values))


def code(
    *uses: IsaUse,
    machine: str = "x86_64",
    type: str = "shared",
    isa_level: str = "",
    soname: str = "",
    verdef: Sequence[str] = (),
    needed: Sequence[str] = (),
    interpreter: str = "",
    python_module: bool = False,
    vector_functions: int = 0,
    functions: int = 0,
    baseline: str = "",
    refusal: Refusal | None = None,
    error: str = "",
) -> CodeFacts:
    linkage = Linkage(
        64,
        machine,
        type=type,
        isa_level=isa_level,
        soname=soname,
        verdef=tuple(verdef),
        needed=tuple(needed),
        interpreter=interpreter,
        python_module=python_module,
    )
    counts = {"vector_functions": vector_functions, "functions": functions}
    isa = None if error else Isa(uses, baseline, refusal=refusal, **counts)
    return CodeFacts(1000, linkage, isa, error=error)


CUDA = CodeFacts(1000, Linkage(64, "x86_64"), gpu=GpuCode((GpuModule(1, sass=("70",)),), cudart="9.0"))


def context(
    files: Mapping[str, CodeFacts],
    host: HostProfile | None = None,
    runtime: str = "docker",
    reaches: Mapping[str, str] | None = None,
    platform: str = "amd64",
    config: ImageConfig | None = None,
    tree: TreeIndex | None = None,
    components: Sequence[Component] = (),
    loaded: Mapping[str, tuple[str, ...]] | None = None,
    everything: bool = False,
    config_digest: str = "sha256:" + 64 * "0",
) -> Context:
    """`files` by path; all are reached from the command but for those that `reaches` says otherwise of.

    `everything` is reached where there is no command. Without `config_digest` it is a tree or a SIF.
    """
    digests = {path: hashlib.sha256(path.encode()).hexdigest() for path in files}
    image = ImageProfile(
        "1.0",
        "test",
        Platform(architecture=platform),
        config or ImageConfig(),
        (LAYER,),
        tuple(FileRecord(path, digests[path], 0, _may_start(facts)) for path, facts in files.items()),
        {digests[path]: facts for path, facts in files.items()},
        tree or TreeIndex(undefined={}),
        config_digest=config_digest,
        components=tuple(components),
    )
    closure = Closure(
        reaches=dict.fromkeys(files, "entry") | dict(reaches or {}),
        loaded=dict(loaded or {}),
        libcs=frozenset(path for path, facts in files.items() if facts.linkage and is_libc(facts.linkage)),
    )
    roots = Roots(everything=everything)
    return Context(image, host or cpu("haswell"), KNOWLEDGE.runtimes[runtime], KNOWLEDGE, closure, roots=roots)


def _may_start(facts: CodeFacts) -> bool:
    """Programs, and the dynamic loader that starts them."""
    linkage = facts.linkage
    return linkage is not None and (linkage.type == "executable" or linkage.soname.startswith("ld-"))


def cpu(name: str, **more) -> HostProfile:
    return describe_host(KNOWLEDGE, cpu=name, **more)


def judged_libraries(image: ImageProfile, *command: str) -> Answers:
    """What the rules on libraries say of a command on a host of which nothing is known."""
    roots = find_roots(image, command)
    host = HostProfile(schema_version="1.0", name="node")
    closure = close(image, roots)
    return libraries.check(Context(image, host, KNOWLEDGE.runtimes["docker"], KNOWLEDGE, closure, roots=roots))


def outcome(answers: Answers, rule: str) -> str:
    (result,) = [check.outcome for check in answers.checks if check.rule == rule]
    return result


def findings(answers: Answers, rule: str) -> list[Finding]:
    """The findings of `rule`, none of which shows an unfilled placeholder of the catalogue."""
    found = [finding for finding in answers if finding.rule == rule]
    for finding in found:
        shown = " ".join((finding.title, finding.predicted_error, finding.why, finding.remedy))
        assert not re.search(r"\{\w+\}", shown), shown
    return found
