"""GPU001-GPU015: whether the host's driver and GPUs run the image's GPU code."""

import sys
from collections.abc import Callable

from imgcheck.check.context import Answers, Context
from imgcheck.check.gpu_case import Case
from imgcheck.documents.report import CheckResult

Rule = Callable[[Case, Answers], None]

_RULES = {
    "GPU001": ("gpu_driver", "mismatch"),
    "GPU002": ("gpu_driver", "runtime_version"),
    "GPU003": ("gpu_targets", "no_code"),
    "GPU004": ("gpu_targets", "only_ptx"),
    "GPU005": ("gpu_driver", "requirement"),
    "GPU006": ("gpu_driver", "compat"),
    "GPU007": ("gpu_driver", "no_library"),
    "GPU008": ("gpu_targets", "ptx_too_new"),
    "GPU009": ("gpu_driver", "missing_functions"),
    "GPU010": ("gpu_targets", "framework_minimum"),
    "GPU011": ("gpu_present", "no_gpu"),
    "GPU012": ("gpu_driver", "unsupported_gpu"),
    "GPU013": ("gpu_jit", "no_compiler"),
    "GPU014": ("gpu_opened", "missing_libraries"),
    "GPU015": ("gpu_cudnn", "too_old"),
}
"""Where each rule is."""
_WITHOUT_GPU = ("GPU011",)
_OF_FRAMEWORKS = ("GPU014", "GPU015")
"""What frameworks open, whose own files need not have code for GPUs."""
_FOR_AMD = ("GPU003", "GPU011")


def check(context: Context) -> Answers:
    """Answers every GPU rule for one cell; all are not applicable where the image has no need of a GPU."""
    case, answers = Case(context), Answers()
    for name in _RULES:
        reason = _not_applicable(case, name)
        if reason:
            answers.answer(name, "not-applicable", reason)
        else:
            _rule(name)(case, answers)
    if not context.may_use_gpu(case.gpu_files):
        answers.checks = [_of_no_matter(answer) for answer in answers.checks]
    return answers


def _of_no_matter(answer: CheckResult) -> CheckResult:
    """Of code for GPUs that nothing reaches a finding would be information alone: no question on it is open."""
    if answer.outcome != "unknown" or answer.rule in _OF_FRAMEWORKS:
        return answer
    reason = f"nothing that the command reaches uses a GPU ({answer.reason})"
    return CheckResult(answer.rule, "not-applicable", reason)


def _rule(name: str) -> Rule:
    # Imported where it is asked alone: on a node without a GPU a preflight has no time for rules on its driver.
    place, function = _RULES[name]
    module = f"imgcheck.check.{place}"
    __import__(module)  # which is at hand, unlike importlib
    return getattr(sys.modules[module], function)


def _not_applicable(case: Case, rule: str) -> str:
    if not case.wants_nvidia and not case.amd_code:
        # What is mounted, downloaded or compiled when it runs may have some: who asks for a GPU gets an answer.
        return "" if rule in _WITHOUT_GPU and case.context.require_gpu else "the image has no GPU code"
    if rule in _WITHOUT_GPU:
        return ""
    if not case.wants_nvidia and rule not in _FOR_AMD:
        return "the image has no code for NVIDIA GPUs"
    if case.lacks_gpu:
        return "the host has no GPU that the image has code for"
    if case.lacks_nvidia and rule not in _FOR_AMD:
        return "the host has no NVIDIA GPU"
    return ""
