"""GPU014: libraries that a framework opens by itself before it uses a GPU."""

from imgcheck.check.context import Answers, Context
from imgcheck.check.gpu_case import Case
from imgcheck.check.loader_rules import elsewhere_note, loader_rules, path_remedy, places
from imgcheck.documents.image import Component, Problem
from imgcheck.documents.report import Finding, Severity
from imgcheck.knowledge.frameworks import Framework, framework_of
from imgcheck.loader.closure import in_python_packages


def missing_libraries(case: Case, answers: Answers) -> None:
    """GPU014: one of the libraries is missing, and the framework goes on without the GPU."""
    context = case.context
    opening = [each for each in context.image.components if each.opens]
    known = {each: found for each in opening if (found := framework_of(case.knowledge, each.name, each.version))}
    if not known:
        reason = "no framework of the image is known to open libraries for the GPU by itself"
        return answers.answer("GPU014", "not-applicable", reason)
    missed = {each: problems for each, framework in known.items() if (problems := _missed(context, each, framework))}
    if missed and not context.host.gpus.known:
        names = ", ".join(sorted({problem.needed for problems in missed.values() for problem in problems}))
        return answers.answer("GPU014", "unknown", f"the host's GPUs are not known; on one {names} would be missing")
    findings = [_finding(case, each, known[each], problems) for each, problems in missed.items()]
    fine = "; ".join(f"{each.name} finds what it opens by itself ({_names(each)})" for each in known)
    return answers.conclude("GPU014", findings, fine)


def _missed(context: Context, component: Component, framework: Framework) -> list[Problem]:
    of_driver = loader_rules(context.knowledge).of_driver  # what a runtime injects is GPU007's
    problems = (p for p in context.closure.problems if p.kind == "opened" and p.root == component.opener)
    return [
        problem
        for problem in problems
        if not of_driver(problem.needed)
        and not (framework.loads_packages and in_python_packages(problem.elsewhere, "nvidia/"))
    ]


def _finding(case: Case, component: Component, framework: Framework, problems: list[Problem]) -> Finding:
    context = case.context
    return context.finding(
        "GPU014",
        _severity(case, framework, problems),
        component.name,
        tuple(context.evidence_at(problem.path, _detail(component, problem)) for problem in problems),
        variant=context.variant("GPU014", framework.id),
        framework=component.name,
        missing=", ".join(dict.fromkeys(problem.needed for problem in problems)),
        opens=_names(component),
        without=framework.without,
        searched=places(problems[0].searched) or "its own directory",
        note=elsewhere_note([problem.elsewhere[0] for problem in problems if problem.elsewhere]),
        library=problems[0].needed,
        remedy=_remedy(framework, problems),
    )


def _names(component: Component) -> str:
    return ", ".join(name.rpartition("/")[2] for name in component.opens)


def _severity(case: Case, framework: Framework, problems: list[Problem]) -> Severity:
    """A risk where what is missing may be loaded all the same: by another package, or where a script says."""
    in_packages = all(in_python_packages(problem.elsewhere) for problem in problems)
    loaded_before = in_packages and not case.components.keys().isdisjoint(framework.loaded_by)
    # A script may set the variables that name directories.
    may_be_sought = bool(framework.seeks) and all(problem.elsewhere for problem in problems)
    return "risk" if loaded_before or may_be_sought or case.context.roots.steered else "fail"


def _detail(component: Component, problem: Problem) -> str:
    verb = "opens" if problem.path == component.opener else "needs"
    return f"{verb} {problem.needed}, which is not found"


def _remedy(framework: Framework, problems: list[Problem]) -> str:
    if all(problem.elsewhere for problem in problems):
        return path_remedy(problem.elsewhere[0] for problem in problems)
    return framework.remedy
