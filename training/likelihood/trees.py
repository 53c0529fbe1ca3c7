"""Sequences with common beginnings as trees: what several of them begin with is computed once.

The options of a question share its text, the two sentences of a minimal pair their first words. A tree is one row of a
net whose mask lets each token see those on the way to it from the root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from preprocessing.schema import Bools, Ints

_ROOM: Final = 256  # tokens of a tree, or twice those of its longest sequence: attention grows with the square
_SHARED: Final = 8  # a sequence joins a tree with which it shares an eighth of its tokens


@dataclass
class Tree:
    """Tokens with their places; `paths` are for each sequence the numbers of its tokens, in order."""

    ids: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    paths: dict[int, list[int]] = field(default_factory=dict)  # by the number of the sequence

    def add(self, number: int, sequence: Sequence[int], before: Sequence[int]) -> None:
        """A sequence whose first tokens are those at `before`."""
        new = range(len(self.ids), len(self.ids) + len(sequence) - len(before))
        self.ids += sequence[len(before) :]
        self.places += range(len(before), len(sequence))
        self.paths[number] = [*before, *new]

    def seen_SS(self) -> Bools:
        """Which tokens each token sees: those before it on its path, and itself."""
        seen_SS = np.zeros((len(self.ids), len(self.ids)), np.bool_)
        for path in self.paths.values():
            seen_SS[np.ix_(path, path)] |= np.tri(len(path), dtype=np.bool_)
        return seen_SS

    @property
    def is_row(self) -> bool:
        """Whether it has no branches."""
        return len(self.ids) == max(map(len, self.paths.values()))


def trees(sequences: Sequence[Sequence[int]]) -> list[Tree]:
    """All sequences, each in one tree.

    >>> [(tree.ids, tree.places, tree.paths) for tree in trees([[5, 6, 7], [8, 9], [5, 6, 4]])]
    [([5, 6, 4, 7], [0, 1, 2, 2], {2: [0, 1, 2], 0: [0, 1, 3]}), ([8, 9], [0, 1], {1: [0, 1]})]
    """
    found, last, path = list[Tree](), list[int](), list[int]()
    for number in sorted(range(len(sequences)), key=lambda each: list(sequences[each])):
        sequence = list(sequences[number])
        shared = _common(last, sequence)  # sorted: no other one before it shares more
        room = max(_ROOM, 2 * len(sequence))
        if not found or shared * _SHARED < len(sequence) or len(found[-1].ids) + len(sequence) - shared > room:
            found.append(Tree())
            shared = 0
        found[-1].add(number, sequence, path[:shared])
        last, path = sequence, found[-1].paths[number]
    return found


def separate_trees(sequences: Sequence[Sequence[int]]) -> list[Tree]:
    """Each sequence as a tree of its own."""
    found = [Tree() for _ in sequences]
    for number, (tree, sequence) in enumerate(zip(found, sequences, strict=True)):
        tree.add(number, list(sequence), [])
    return found


def as_array(trees: Sequence[Tree]) -> tuple[Ints, Ints, Bools]:
    """Ids and places [B, S], and what each token sees [B, S, S], as a rectangle; padding sees itself."""
    longest = max(len(tree.ids) for tree in trees)
    ids_BS, places_BS = (np.zeros((len(trees), longest), np.int64) for _ in range(2))
    seen_BSS = np.broadcast_to(np.eye(longest, dtype=np.bool_), (len(trees), longest, longest)).copy()
    for row, tree in enumerate(trees):
        size = len(tree.ids)
        ids_BS[row, :size], places_BS[row, :size] = tree.ids, tree.places
        seen_BSS[row, :size, :size] = tree.seen_SS()
    return ids_BS, places_BS, seen_BSS


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))
