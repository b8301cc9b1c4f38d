"""Tables kept as columns: frozen dataclasses whose fields are arrays, and whose rows each tell of one thing."""

from collections.abc import Iterable
from typing import ClassVar, Self

import numpy as np


class Columns:
    """What such tables have in common."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict]

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """The rows of one or more parts, one part behind the other."""
        parts = list(parts)
        return cls(*(np.concatenate([getattr(part, field) for part in parts]) for field in cls.__dataclass_fields__))

    def take(self, chosen: np.ndarray) -> Self:
        """Some rows, by their numbers."""
        return type(self)(*(getattr(self, field).take(chosen) for field in self.__dataclass_fields__))
