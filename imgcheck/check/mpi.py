"""MPI001 to MPI004 where an image has MPI; of the others nothing is asked but the names of their libraries."""

from imgcheck.check.context import Answers, Context
from imgcheck.globs import parts

_IDS = ("MPI001", "MPI002", "MPI003", "MPI004")


def check(context: Context) -> Answers:
    """Every rule of the family; none applies to an image without MPI."""
    answers = Answers()
    if not (_may_use_mpi(context) and _asked(context, answers)):
        for name in _IDS:
            answers.answer(name, "not-applicable", "no program or library of the image uses MPI")
    return answers


def _asked(context: Context, answers: Answers) -> bool:
    from imgcheck.check.mpi_rules import ask  # for which a preflight of an image without MPI has no time

    return ask(context, answers)


def _may_use_mpi(context: Context) -> bool:
    """Whether some name begins like that of an MPI library: all are looked at at once, since hardly one does."""
    interfaces = context.knowledge.table("mpi/mpi.toml")["abi"]
    beginnings = tuple({parts(glob)[0] for interface in interfaces for glob in interface["sonames"]})
    names = {linkage.soname for _, linkage in context.linked}.union(*(linkage.needed for _, linkage in context.linked))
    return any(name.startswith(beginnings) for name in names)
