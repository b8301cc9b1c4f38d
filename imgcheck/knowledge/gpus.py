"""GPU products, their compute capability, and the driver branches that drive them (rules/tables/gpus, pci)."""

import re
from functools import lru_cache

from imgcheck.knowledge.store import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.versions import parse


class Product(Data, frozen=True):
    """A product name with its compute capability (rules/tables/gpus/products.toml)."""

    id: str
    capability: str
    sources: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    first_driver: str = ""
    """Oldest driver that lists it, where it came later than its capability."""


class Capability(Data, frozen=True):
    """A compute capability: its chips and the drivers for them (rules/tables/gpus/capabilities.toml)."""

    id: str
    generation: str
    chips: tuple[str, ...]
    sources: tuple[str, ...]
    tegra: bool = False
    """An integrated part, not binary compatible with the desktop parts of its major version."""
    unverified: bool = False
    """Of a Tegra part: whether desktop code runs on it after all is not recorded."""
    first_driver: str = ""
    last_branch: str = ""
    """Last driver branch that drives it; empty while it is supported."""


class Generic(Data, frozen=True):
    """A generic AMD target and the targets that it covers (rules/tables/gpus/amd.toml)."""

    id: str
    targets: tuple[str, ...]
    sources: tuple[str, ...]


_NOISE = (
    r"nvidia|corporation|tesla|geforce|gpu|generation|laptop|mobile|notebook|max|q|design"
    r"|sxm\d?|pcie|pci|e|nvl|hbm\d?e?|fhhl|ds|dgxs|lp|\d+(?:gb|gib|g)"
)
"""Words that tell makers, forms and memory of one product apart, which all have its compute capability."""


@lru_cache(maxsize=4)
def products(knowledge: Knowledge) -> tuple[Product, ...]:
    return tuple(knowledge.entries("tables/gpus", "product", Product))


@lru_cache(maxsize=4)
def capabilities(knowledge: Knowledge) -> dict[str, Capability]:
    """Compute capability ("3.7") to what is known of it, oldest first."""
    entries = sorted(knowledge.entries("tables/gpus", "capability", Capability), key=lambda entry: parse(entry.id))
    return {entry.id: entry for entry in entries}


@lru_cache(maxsize=4)
def _chips(knowledge: Knowledge) -> dict[str, str]:
    return {chip: entry.id for entry in capabilities(knowledge).values() for chip in entry.chips}


@lru_cache(maxsize=4)
def _pci(knowledge: Knowledge) -> dict[str, Product]:
    chips = _chips(knowledge)
    table = knowledge.table("tables/pci/nvidia.toml")
    return {
        device: Product(entry["name"], chips[entry["chip"]], ("pci.ids",))
        for device, entry in table.items()
        if entry["chip"] in chips
    }


@lru_cache(maxsize=4)
def amd_generics(knowledge: Knowledge) -> dict[str, tuple[str, ...]]:
    """Generic AMD target ("gfx11-generic") to the targets that run its code."""
    return {entry.id: entry.targets for entry in knowledge.entries("tables/gpus", "generic", Generic)}


def by_name(knowledge: Knowledge, name: str) -> Product | None:
    """The product that people or nvidia-smi call `name`: "Tesla M60", "K80", "NVIDIA A100-SXM4-40GB", "H100 PCIe".

    A MIG instance ("NVIDIA A100-SXM4-40GB MIG 1g.5gb") is its product. None where the name is unknown or fits
    products of different compute capability ("RTX 6000").
    """
    key = _key(name)
    if not key:
        return None
    for product in products(knowledge):
        if any(_means(name, key) for name in (product.id, *product.aliases)):
            return product
    listed = [product for product in _pci(knowledge).values() if any(_means(n, key) for n in product.id.split(" / "))]
    return listed[0] if len({product.capability for product in listed}) == 1 else None


def near_names(knowledge: Knowledge, name: str, most: int = 4) -> list[Product]:
    """Products that a `name` unknown to by_name may mean: those with all its words, else misspelt ones."""
    from imgcheck.spelling import misspelt

    key = _key(name)
    listed = {each: product for product in products(knowledge) for each in (product.id, *product.aliases)}
    holding = {product.id: product for each, product in listed.items() if key and key <= _key(each)}
    if not holding and len(name) <= 100:
        spelt = {" ".join(sorted(_key(each))): product for each, product in listed.items()}
        near = misspelt(" ".join(sorted(key)), spelt, most)
        holding = {spelt[each].id: spelt[each] for each in near}
    return sorted(holding.values(), key=lambda product: (len(_key(product.id)), product.id))[:most]


def by_pci_id(knowledge: Knowledge, pci_id: str) -> Product | None:
    """The product with PCI id "10de:102d" (either case, with or without 0x); None where it is not listed."""
    return _pci(knowledge).get(pci_id.lower().replace("0x", ""))


def _means(name: str, key: frozenset[str]) -> bool:
    # Taking a name apart takes longer than telling that it is another.
    lower = name.lower()
    return all(word in lower for word in key) and _key(name) == key


def _key(name: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9+]+", re.sub(r"\bmig\b.*", "", name.lower()))
    return frozenset([word for word in words if not re.fullmatch(_NOISE, word)])
