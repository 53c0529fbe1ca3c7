"""Sequences with common prefixes as trees: a shared prefix is computed once.

The choices of a question share its text; the two sentences of a minimal pair share their first words. A tree is one
sequence of a model; its attention mask lets each token attend to the tokens on its path from the root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from preprocessing.schema import Bools, Ints

_ROOM: Final = 256  # maximum tokens of a tree (or twice its longest sequence): attention is quadratic
_SHARED: Final = 8  # a sequence joins a tree if it shares at least 1/8 of its tokens


@dataclass
class Tree:
    """Tokens and their positions; `paths` has the token indices of each sequence, in order."""

    ids: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    paths: dict[int, list[int]] = field(default_factory=dict)  # by index of the sequence

    def add(self, number: int, sequence: Sequence[int], before: Sequence[int]) -> None:
        """Add a sequence whose first tokens are the nodes `before`."""
        new = range(len(self.ids), len(self.ids) + len(sequence) - len(before))
        self.ids += sequence[len(before) :]
        self.places += range(len(before), len(sequence))
        self.paths[number] = [*before, *new]

    def build_mask_SS(self) -> Bools:
        """The attention mask [S, S]: each token attends to itself and to the tokens before it on its path."""
        seen_SS = np.zeros((len(self.ids), len(self.ids)), np.bool_)
        for path in self.paths.values():
            seen_SS[np.ix_(path, path)] |= np.tri(len(path), dtype=np.bool_)
        return seen_SS

    @property
    def is_row(self) -> bool:
        """Whether the tree has no branches."""
        return len(self.ids) == max(map(len, self.paths.values()))


def trees(sequences: Sequence[Sequence[int]]) -> list[Tree]:
    """Group all sequences into trees; each sequence is in exactly one tree.

    >>> [(tree.ids, tree.places, tree.paths) for tree in trees([[5, 6, 7], [8, 9], [5, 6, 4]])]
    [([5, 6, 4, 7], [0, 1, 2, 2], {2: [0, 1, 2], 0: [0, 1, 3]}), ([8, 9], [0, 1], {1: [0, 1]})]
    """
    groups, last, path = list[Tree](), list[int](), list[int]()
    for number in sorted(range(len(sequences)), key=lambda each: list(sequences[each])):
        sequence = list(sequences[number])
        shared = _common(last, sequence)  # sorted: the previous sequence shares the longest prefix
        room = max(_ROOM, 2 * len(sequence))
        if not groups or shared * _SHARED < len(sequence) or len(groups[-1].ids) + len(sequence) - shared > room:
            groups.append(Tree())
            shared = 0
        groups[-1].add(number, sequence, path[:shared])
        last, path = sequence, groups[-1].paths[number]
    return groups


def separate_trees(sequences: Sequence[Sequence[int]]) -> list[Tree]:
    """Return one tree per sequence."""
    groups = [Tree() for _ in sequences]
    for number, (tree, sequence) in enumerate(zip(groups, sequences, strict=True)):
        tree.add(number, list(sequence), [])
    return groups


def as_array(trees: Sequence[Tree]) -> tuple[Ints, Ints, Bools]:
    """Token IDs and positions [B, S], and the attention mask [B, S, S], padded; padding attends to itself."""
    longest = max(len(tree.ids) for tree in trees)
    ids_BS, places_BS = (np.zeros((len(trees), longest), np.int64) for _ in range(2))
    seen_BSS = np.broadcast_to(np.eye(longest, dtype=np.bool_), (len(trees), longest, longest)).copy()
    for row, tree in enumerate(trees):
        size = len(tree.ids)
        ids_BS[row, :size], places_BS[row, :size] = tree.ids, tree.places
        seen_BSS[row, :size, :size] = tree.build_mask_SS()
    return ids_BS, places_BS, seen_BSS


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the common prefix."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return number
    return min(len(one), len(other))
