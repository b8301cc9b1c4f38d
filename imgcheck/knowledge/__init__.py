"""The only reader of rules/: typed tables, read when first asked for.

Data files are TOML under rules/ (in the wheel: imgcheck/rules/). A site adds or overrides entries by id with
`--rules DIR`, whose files have the same layout; rules/analysis/ belongs to the engines and cannot be overridden.
"""

from imgcheck.knowledge.store import Knowledge

__all__ = ["Knowledge"]
