"""What somebody may have meant by a word that nothing is called by: words few slips of the keyboard away."""

from collections.abc import Iterable


def misspelt(word: str, known: Iterable[str], most: int = 4) -> list[str]:
    """Those of `known` that `word` is a slip or two of, the nearest first.

    One slip in three to five letters, two in more: a share of common letters, as difflib counts it, would make "amd64"
    of "amd" and "interlagos" of "intel".
    """
    limit = min(2, len(word) // 3)
    near = [(slips(word, each), each) for each in set(known) if abs(len(each) - len(word)) <= limit]
    return [each for count, each in sorted(near) if count <= limit][:most]


def slips(one: str, other: str) -> int:
    """Letters left out, added, changed, or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        this = [row]
        for column, against in enumerate(other, 1):
            cost = min(last[column] + 1, this[-1] + 1, last[column - 1] + (letter != against))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == against:
                cost = min(cost, before[column - 2] + 1)
            this.append(cost)
        before, last = last, this
    return last[-1]
