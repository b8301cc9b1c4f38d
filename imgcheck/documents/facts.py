"""What the binaries engines say of one file's bytes. Independent of where the file lies."""

from typing import Literal

from msgspec import Struct

LIBCUDA = "libcuda.so.1"
"""The soname of the CUDA driver library, by which files need it and the loader seeks it."""

ElfType = Literal["executable", "shared", "relocatable", "core", "other"]
Answer = Literal["required", "dispatched", "unknown"]


class Document(Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of everything stored: frozen, defaults left out, unknown fields ignored on reading.

    None refers back to what holds it, so that Python need not look for cycles among the thousands of a profile.
    """


class Verneed(Document, frozen=True):
    """Symbol versions that a file needs from one library (an Elf_Verneed with its Elf_Vernaux)."""

    library: str
    versions: tuple[str, ...]
    weak: tuple[str, ...] = ()
    """Those of `versions` that carry VER_FLG_WEAK: ld.so only warns when they are missing."""


class Linkage(Document, frozen=True):
    """What the dynamic loader and the kernel read in an ELF file."""

    elf_class: int
    """32 or 64."""
    machine: str
    """x86_64, i386, aarch64, arm, ppc64le, ppc64, riscv64, s390x, loongarch64 or `em-N`."""
    type: ElfType = "shared"
    """`executable` is ET_EXEC, or ET_DYN with DF_1_PIE or an interpreter."""
    interpreter: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    """DT_RPATH split at colons; empty where DT_RUNPATH is present, which makes ld.so ignore it."""
    runpath: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    """DT_FILTER."""
    auxiliary: tuple[str, ...] = ()
    """DT_AUXILIARY."""
    flags: tuple[str, ...] = ()
    """Of: static, pie, nodeflib, now, gnu_hash_only, relr, textrel."""
    verneed: tuple[Verneed, ...] = ()
    verdef: tuple[str, ...] = ()
    abi: str = ""
    """Lowest kernel of .note.ABI-tag, as "linux 3.2.0"."""
    isa_level: str = ""
    """Level of GNU_PROPERTY_X86_ISA_1_NEEDED: x86-64, x86-64-v2, x86-64-v3 or x86-64-v4."""
    driver_functions: tuple[str, ...] = ()
    """Undefined, non-weak cu* functions of .dynsym, when libcuda.so.1 is the library that would give them."""
    python_module: bool = False
    """Exports a PyInit_* or init* entry."""
    loader_directories: tuple[str, ...] = ()
    """Of glibc's ld.so itself: the default directories that were built into it."""
    glibc_release: str = ""
    """Of glibc's C library and its ld.so: what they print as their release, "2.36"; ld.so has it from 2.33 on."""
    markers: tuple[str, ...] = ()
    """Named groups of dynamic symbols that tell implementations apart (open-mpi, mpich, ...), and of a Python module
    texts that tell what it was built with (numpy-1)."""
    mentions: tuple[str, ...] = ()
    """Names in its strings of libraries and GPU code, which it may open by itself; `*` is what it works out. A profile
    has what they lead to instead, in TreeIndex.mentions."""


class Symbols(Document, frozen=True):
    """The dynamic symbols by which a file meets others. A profile has what becomes of them: TreeIndex.undefined."""

    defined: bytes = b""
    """Hashes (binaries.kernels.names) of the names that it gives to others: 32 bits each, `<I`."""
    at_load: bytes = b""
    """Names that relocations ask for when it is loaded, each with a NUL behind it, in their order; no weak ones."""
    at_call: bytes = b""
    """The same of functions that are sought when they are called first, or at load by a loader that is told so."""


class IsaUse(Document, frozen=True):
    """One instruction-set extension in one file: the answer, its reason and its first instruction."""

    feature: str
    answer: Answer
    reason: str
    """One sentence."""
    count: int = 0
    """Confirmed instructions of the extension; 0 where it follows from a note alone."""
    address: int = 0
    """Virtual address of the instruction shown."""
    function: str = ""
    """Symbol that holds it, or `sub_ADDRESS` where there is none."""
    code: str = ""
    """Its bytes, in hexadecimal."""
    text: str = ""
    """Its disassembly."""
    call_path: tuple[str, ...] = ()
    """Functions from an entry point down to `function`, when required and known."""
    given: tuple[tuple[str, ...], ...] = ()
    """The answer holds on CPUs of one of these kinds alone: each lists features that the CPU has, and with "!" before
    them those that it lacks. Empty: on every CPU."""


class Refusal(Document, frozen=True):
    """A program's own test of the CPU, on every way through its start, behind which it ends with a failure."""

    level: str
    """Microarchitecture level below which it ends: x86-64-v2, x86-64-v3 or x86-64-v4. Where it names features, the
    lowest that has those of them which any level has."""
    words: str
    """What it prints; "" where that is not seen."""
    features: tuple[str, ...] = ()
    """Those without one of which it ends, where it names them; without any it is the level that counts."""

    @property
    def demanded(self) -> tuple[str, ...]:
        """These, or the level."""
        return self.features or (self.level,)


class Isa(Document, frozen=True):
    """The instruction sets of one file's code."""

    uses: tuple[IsaUse, ...] = ()
    baseline: str = ""
    """Highest microarchitecture level or feature that the whole file was compiled for, as far as is seen."""
    code_bytes: int = 0
    """Size of the executable sections that were looked at."""
    vector_functions: int = 0
    """Functions that compute on several numbers at once: how much a wider baseline could bring (CPU004)."""
    functions: int = 0
    """Functions in all that unwind data tell of; 0 where none do."""
    asks_cpu: tuple[str, ...] = ()
    """How the file finds out what the CPU has (cpuid, __cpu_model, IFUNC, getauxval, ...)."""
    refusal: Refusal | None = None


UNREAD = "unread"


class GpuObject(Document, frozen=True):
    """Relocatable code (-rdc) of one source file, by its targets as GpuModule has them."""

    sass: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()


class GpuModule(Document, frozen=True):
    """Fatbin containers of one file that carry the same targets, and how many of them there are."""

    count: int
    sass: tuple[str, ...] = ()
    """Targets with machine code: "70", "90a", "100f"."""
    ptx: tuple[str, ...] = ()
    """Virtual targets with their PTX ISA version: "70@6.0", "90a@8.4"."""
    lto: tuple[str, ...] = ()
    """Targets that exist as NVVM/LTO IR alone, which the driver does not load."""
    other: tuple[str, ...] = ()
    """Tile IR, what is concatenated, kinds without a name, and UNREAD where a part could not be read."""
    objects: tuple[GpuObject, ...] = ()
    """Different ones of relocatable code, of all of which the driver links what the module lacks, at load."""

    @property
    def relocatable(self) -> tuple[str, ...]:
        """The PTX of its objects, as `ptx`."""
        return tuple(dict.fromkeys(entry for each in self.objects for entry in each.ptx))


class ForwardCompat(Document, frozen=True):
    """`.note.cuda.fwd_compatibility` of a cuda-compat libcuda."""

    cuda: str
    drivers: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()


class GpuCode(Document, frozen=True):
    """GPU code, CUDA runtime and driver evidence in one file."""

    modules: tuple[GpuModule, ...] = ()
    cudart: str = ""
    """Version of the CUDA runtime whose code is in this file (static or libcudart itself): "9.0"."""
    toolkit: str = ""
    """Newest toolkit that compiled a cubin: "9.2"."""
    driver_cuda: str = ""
    """For a libcuda: the CUDA version that its cuDriverGetVersion returns."""
    driver_version: str = ""
    """For a driver library: its version from its own strings, "390.30"."""
    stub: bool = False
    """A link stub of libcuda (cuDriverGetVersion fails with 34)."""
    forward_compat: ForwardCompat | None = None
    built_for: tuple[str, ...] = ()
    """Capabilities that a framework records in the binary, "3.5" first (TensorFlow, PyTorch)."""
    libraries: tuple[str, ...] = ()
    """Named CUDA libraries seen by their code with version: "NCCL 2.21.5+cuda12.4"."""
    amd: tuple[str, ...] = ()
    """AMD targets of HIP bundles: "gfx90a:sramecc+:xnack-"."""


class CodeFacts(Document, frozen=True):
    """All that the engines say of one file's bytes."""

    size: int
    linkage: Linkage | None = None
    isa: Isa | None = None
    gpu: GpuCode | None = None
    symbols: Symbols | None = None
    """None where they could not be read: it may give whatever others ask for."""
    error: str = ""
    """Why the file could not be read, or not wholly."""
