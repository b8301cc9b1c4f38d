"""The host's CPU as CPU001 to CPU004 ask it."""

from collections.abc import Iterable

from imgcheck.check.arch import platform_machine
from imgcheck.check.context import Context
from imgcheck.documents.facts import IsaUse, Refusal
from imgcheck.documents.image import FileRecord
from imgcheck.knowledge import cpus


class CpuHost:
    """What is known of its features, and its name."""

    def __init__(self, context: Context) -> None:
        self.knowledge = context.knowledge
        self.machine = context.host.cpu.architecture.value or platform_machine(context)
        fact = context.host.cpu.features
        self.features = frozenset(fact.value or ()) if fact.known else None
        cpu = context.host.cpu
        model, name = cpu.model.value or "", cpu.microarchitecture.value or ""
        self._known: dict[tuple[str, str], bool | None] = {}
        self.name = f"{model} ({name})" if model and name and model != name else model or name or "the host's CPU"

    def has(self, architecture: str, feature: str) -> bool | None:
        """Whether the CPU has `feature`, None where that is not known."""
        key = (architecture, feature)
        if key not in self._known:
            self._known[key] = self._has(architecture, feature)
        return self._known[key]

    def copes(self, architecture: str, use: IsaUse) -> bool | None:
        """Whether the CPU has what `use` needs, or is of a kind to which the answer does not apply."""
        has = self.has(architecture, use.feature)
        if has or not use.given:
            return has
        kinds = [self._is(architecture, kind) for kind in use.given]
        if True in kinds:
            return has
        return None if None in kinds else True

    def _is(self, architecture: str, kind: tuple[str, ...]) -> bool | None:
        """Whether the CPU has all features of a kind (see IsaUse.given), and lacks all that have "!" before them."""
        found = [
            has if has is None else has != name.startswith("!")
            for name in kind
            for has in (self.has(architecture, name.removeprefix("!")),)
        ]
        return False if False in found else None if None in found else True

    def _has(self, architecture: str, feature: str) -> bool | None:
        if feature in cpus.baseline(self.knowledge, architecture):
            return True
        if self.features is None:
            return None
        if feature in self.features:
            return True
        return False if feature in cpus.features(self.knowledge, architecture) else None


def lacking(host: CpuHost, level: str) -> frozenset[str]:
    """What the CPU lacks of a level; nothing where its features are not known."""
    return frozenset() if host.features is None else cpus.level_features(host.knowledge, level) - host.features


def lacks_of_refusal(host: CpuHost, refusal: Refusal) -> frozenset[str]:
    """What the CPU lacks of what a program asks for that ends without it; nothing where that is not known."""
    if not refusal.features:
        return lacking(host, refusal.level)
    return frozenset(each for each in refusal.features if host.has("x86_64", each) is False)


def example(host: CpuHost, wanted: Iterable[str]) -> str:
    """The oldest well-known CPUs that have all of `wanted`: " (Haswell, Zen or later)"."""
    names = cpus.first_with(host.knowledge, host.machine, frozenset(wanted))
    return f" ({' or '.join(names)}, or later)" if names else ""


def build(host: CpuHost) -> str:
    """The compiler option that makes code for this CPU."""
    if host.features is None:
        return "compiled for the baseline"
    if host.machine in ("x86_64", "i386"):
        return f"-march={cpus.level_of(host.knowledge, host.features)}"
    return "-mcpu=power8" if host.machine == "ppc64le" else "-march=armv8-a"


def is_tensorflow(context: Context, record: FileRecord) -> bool:
    """A library of TensorFlow itself, which tests the CPU for what it was compiled with, in its own words."""
    named = any(component.name == "TensorFlow" for component in context.image.components)
    *directories, name = record.path.split("/")
    its = name.startswith("libtensorflow") or any(each.startswith("tensorflow") for each in directories)
    return named and its and ".so" in name


def words(host: CpuHost, features: Iterable[str]) -> str:
    """As TensorFlow and others write them: "SSE4.1 SSE4.2 AVX AVX2 AVX512F FMA"."""
    return cpus.display(host.knowledge, host.machine, features).replace(", ", " ").replace("AVX-512", "AVX512")
