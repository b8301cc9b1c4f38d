"""MPI001 to MPI004: the image's message passing against the host's libraries, launchers and fabrics.

Two ways to start an image across nodes are judged apart. The hybrid model: the host's launcher starts the image's own
MPI, so that both must speak one protocol (MPI001, MPI002). The bind model: the host's library takes the place of the
image's, so that names and versions must fit (MPI001, MPI003).
"""

import posixpath
from collections.abc import Callable

from imgcheck import versions
from imgcheck.check.context import Answers, Context
from imgcheck.check.loader_rules import image_glibc
from imgcheck.check.mpi_facts import Fabric, MpiFacts, Use
from imgcheck.documents.host import HostLibrary
from imgcheck.documents.report import Evidence, Finding, Severity
from imgcheck.loader import glibc as gnu

Rule = Callable[[MpiFacts, Answers], None]

_GLIBC = "GLIBC_"


def ask(context: Context, answers: Answers) -> bool:
    """Every rule of the family; False for an image without MPI, to which none applies."""
    facts = MpiFacts(context)
    for rule in _RULES if facts.candidates else ():
        rule(facts, answers)
    return bool(facts.candidates)


# MPI001 --------------------------------------------------------------------------------------------------------------


def _families(facts: MpiFacts, answers: Answers) -> None:
    if not facts.host_abis:
        _without_host(facts, answers)
        return
    shared = [use for use in facts.candidates if use.abi.id in facts.host_abis]
    if shared:
        answers.answer("MPI001", "ok", f"image and host have the same MPI interface: {shared[0].abi.title}")
        return
    use = facts.candidates[0]
    answers.conclude("MPI001", [_family_finding(facts, use)], f"the image's {use.title} starts without the host's MPI")


def _without_host(facts: MpiFacts, answers: Answers) -> None:
    """An image with library and launcher needs no MPI of the host on one node; others depend on it."""
    seen = "the host's MPI is not known" if facts.context.host.libraries.unknown else "no MPI was seen on the host"
    if not facts.has_program and (facts.libraries or facts.reach(facts.candidates[0]) == "unreached"):
        answers.answer("MPI001", "ok", f"no program that the command reaches starts MPI itself, and {seen}")
    elif facts.self_contained:
        reason = f"on one node the image's own launcher starts its {facts.candidates[0].title}; {seen}"
        answers.answer("MPI001", "ok", reason)
    else:
        what = "launcher" if facts.libraries else "library"
        hint = "load the site's MPI module and probe again"
        answers.answer("MPI001", "unknown", f"the image has MPI without a {what} of its own, and {seen}; {hint}")


def _family_finding(facts: MpiFacts, use: Use) -> Finding:
    same_family = any(abi.family == use.abi.family for abi, _ in facts.host_abis.values())
    return facts.context.finding(
        "MPI001",
        _family_severity(facts, use, same_family),
        use.soname,
        _evidence(facts, use),
        variant=_family_variant(facts, use, same_family),
        image_mpi=use.title,
        host_mpi=facts.host_titles,
        path=use.record.path,
        soname=use.soname,
        remedy=_family_remedy(facts, use),
    )


def _family_severity(facts: MpiFacts, use: Use, same_family: bool) -> Severity:
    speaks = set(facts.protocols(use)) & set(facts.host_protocols)
    # Launchers of MPICH's family start each other's programs; those of Open MPI are bound to their version.
    started = same_family and use.abi.family == "MPICH" and use.is_library
    return "info" if speaks or started or not _needs_host(facts, use) else "risk"


def _family_variant(facts: MpiFacts, use: Use, same_family: bool) -> str:
    if same_family or not use.is_library:
        return "name"
    prrte = any(library.soname.startswith("libprrte.") for library in facts.host_libraries)
    return "pmix" if prrte and use.abi.family == "MPICH" else ""


def _family_remedy(facts: MpiFacts, use: Use) -> str:
    common = [each for each in facts.protocols(use) if each in facts.host_protocols]
    if common:
        return f"Start it with `{common[0].srun}`, which the image's MPI understands; do not bind the host's MPI."
    own = "Start it with the image's own mpirun, on one node; for several nodes " if facts.self_contained else ""
    return f"{own or 'For this host '}build the image with {facts.host_titles}."


# MPI002 --------------------------------------------------------------------------------------------------------------


def _launch(facts: MpiFacts, answers: Answers) -> None:
    use = facts.candidates[0]
    if not facts.host_protocols:
        seen = "is not known" if facts.context.host.libraries.unknown else "was not seen"
        answers.answer("MPI002", "not-applicable", f"a resource manager that starts MPI {seen} on the host")
        return
    own = facts.protocols(use)
    common = [each.title for each in own if each in facts.host_protocols]
    if common or not use.is_library:
        reason = f"image and host both speak {common[0]}" if common else "the image has no MPI library of its own"
        answers.answer("MPI002", "ok" if common else "not-applicable", reason)
        return
    answers.conclude("MPI002", [_launch_finding(facts, use)], "the image's own launcher starts the processes")


def _launch_finding(facts: MpiFacts, use: Use) -> Finding:
    own = " or ".join(each.title for each in facts.protocols(use)) or "no protocol of a resource manager"
    offered = " and ".join(each.title for each in facts.host_protocols)
    with_it = "; on one node the image's own mpirun works" if facts.self_contained else ""
    return facts.context.finding(
        "MPI002",
        "risk" if _needs_host(facts, use) else "info",
        use.soname,
        _evidence(facts, use),
        path=use.record.path,
        image_protocols=own,
        host_protocols=offered,
        remedy=f"Build the image's MPI with {offered}, or start it with a launcher of its own family{with_it}.",
    )


# MPI003 --------------------------------------------------------------------------------------------------------------


def _bound(facts: MpiFacts, answers: Answers) -> None:
    pairs = [(use, facts.host_abis[use.abi.id][1]) for use in facts.candidates if use.abi.id in facts.host_abis]
    if not pairs:
        reason = "the host's MPI is not known" if facts.context.host.libraries.unknown else "no MPI of the image's ABI"
        answers.answer("MPI003", "not-applicable", f"{reason}: none could be bound over the image's")
        return
    use, library = pairs[0]
    glibc = image_glibc(facts.context)
    newest = _newest_glibc(library)
    if glibc and newest and not versions.at_least(glibc, newest):
        findings = [_glibc_finding(facts, use, library, glibc, newest)]
    else:
        findings = _missing_findings(facts, use, library)
    fine = f"the host's {library.path} could be bound over the image's MPI"
    answers.conclude("MPI003", findings, fine if glibc else f"{fine}, if the image's C library suits it")


def _newest_glibc(library: HostLibrary) -> str:
    named = [v.removeprefix(_GLIBC) for need in library.verneed for v in need.versions if v.startswith(_GLIBC)]
    return max((number for number in named if versions.parse(number)), key=versions.parse, default="")


def _glibc_finding(facts: MpiFacts, use: Use, library: HostLibrary, glibc: str, newest: str) -> Finding:
    libc = next(iter(sorted(facts.context.closure.libcs)), "libc.so.6")
    return facts.context.finding(
        "MPI003",
        "info" if use.is_library else "fail",
        library.soname,
        _evidence(facts, use, library),
        path=libc,
        version=f"{_GLIBC}{newest}",
        library=library.path,
        why=f"The host's {library.path} was built for glibc {newest} or newer, and the image has {glibc}.",
        remedy=_bound_remedy(use, f"a base image with glibc {newest} or newer"),
    )


def _missing_findings(facts: MpiFacts, use: Use, library: HostLibrary) -> list[Finding]:
    here = {f.linkage.soname for f in facts.context.image.objects.values() if f.linkage}
    missing = [name for name in library.needed if name not in here and not name.startswith(gnu.PARTS)]
    if not missing:
        return []
    return [
        facts.context.finding(
            "MPI003",
            "info" if use.is_library else "risk",
            library.soname,
            _evidence(facts, use, library),
            variant="missing",
            path=use.record.path,
            version=missing[0],
            why=f"The host's {library.path} needs {', '.join(missing)}, and the image has none of them.",
            remedy=_bound_remedy(use, f"the host's {', '.join(missing)} bound into the container as well"),
        )
    ]


def _bound_remedy(use: Use, otherwise: str) -> str:
    if use.is_library:
        return f"Do not bind the host's MPI: the image's own starts by the hybrid model. Or use {otherwise}."
    return f"Install an MPI in the image and start it by the hybrid model, or use {otherwise}."


# MPI004 --------------------------------------------------------------------------------------------------------------


def _fabrics(facts: MpiFacts, answers: Answers) -> None:
    drivers = facts.context.host.fabrics
    present = [each for each in facts.rules.fabric if set(each.drivers) & set(drivers.value or ())]
    if not present:
        reason = "which fabric the host has is not known" if drivers.unknown else "the host has no fast fabric"
        answers.answer("MPI004", "not-applicable", reason)
        return
    lacking = [(each, refused) for each in present for taken, refused in [facts.providers(each)] if not taken]
    findings = [_fabric_finding(facts, fabric, refused) for fabric, refused in lacking]
    answers.conclude("MPI004", findings, f"the image drives the host's {' and '.join(each.title for each in present)}")


def _fabric_finding(facts: MpiFacts, fabric: Fabric, refused: list[str]) -> Finding:
    use = facts.candidates[0]
    note = f" ({refused[0]} is for another libibverbs)" if refused else ""
    return facts.context.finding(
        "MPI004",
        "degraded" if facts.has_program else "info",
        fabric.title,
        _evidence(facts, use),
        wanted=" or ".join(fabric.providers),
        note=note,
        package=fabric.package,
    )


# common --------------------------------------------------------------------------------------------------------------


def _needs_host(facts: MpiFacts, use: Use) -> bool:
    return facts.needs_host or not use.is_library


def _evidence(facts: MpiFacts, use: Use, library: HostLibrary | None = None) -> tuple[Evidence, ...]:
    detail = use.title if use.is_library else f"needs {use.soname}"
    if library is not None:
        detail = f"{detail}; the host has {posixpath.basename(library.path)} {library.version}".strip()
    return (facts.context.evidence(use.record, detail, soname=use.soname, abi=use.abi.id),)


_RULES: tuple[Rule, ...] = (_families, _launch, _bound, _fabrics)
