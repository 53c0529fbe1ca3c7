"""What of the input could not be read, by its files and their stored bytes: a torn file counts as a whole.

Of what is torn off nobody knows how much it was, so that neither its documents nor its bytes can be counted. A file of
which a small part is left counts as large as others are: it may have lost as much.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from pipeline.readers import CUT_OFF, TRAILING, InputSplit
from pipeline.steps.clean import Damage

_MOST_FILES: Final = 3  # that a message names


@dataclass(frozen=True)
class SplitDamage:
    """The damage in some splits, of which the seals say what each has."""

    num_files: int
    share: float  # of the stored bytes: those of torn files with what is `missing`, and what cannot be read in others
    missing: float  # bytes that torn files have less than the median of the sound ones
    torn: dict[str, str]  # files that end before they should, or have something else behind their end, and why
    unreadable: dict[str, str]  # files without a single document that can be read, and why
    damaged: dict[str, str]  # all files with damage, the worst first
    empty: tuple[str, ...]  # files of 0 bytes

    @classmethod
    def of(cls, splits: Sequence[InputSplit], seals: Iterable[dict[str, Any]]) -> "SplitDamage":
        weights, sizes, labels, sound = Counter[str](), dict[str, int](), dict[str, str](), set[str]()
        lost, torn, why, short = dict[str, float](), dict[str, str](), dict[str, str](), set[str]()
        for split in splits:
            for piece in split.pieces:
                weights[piece.file.path] += piece.weight
                sizes[piece.file.path], labels[piece.file.path] = piece.stored, piece.label
        for split, facts in zip(splits, seals, strict=True):
            found = {damage.piece: damage for damage in (Damage(*each) for each in facts["damaged"])}
            for number, piece in enumerate(split.pieces):
                path = piece.file.path
                if (damage := found.get(number)) is None or not damage.is_whole:
                    sound.add(path)
                if damage is not None:
                    share = piece.weight / weights[path] if weights[path] else 1.0
                    lost[path] = lost.get(path, 0.0) + damage.share * share * sizes[path]
                    why[path] = torn.get(path, damage.why)
                    if damage.is_torn or damage.why in (TRAILING, CUT_OFF):
                        torn[path] = damage.why
                    if damage.is_torn or damage.why == CUT_OFF:
                        short.add(path)
        whole = [size for path, size in sizes.items() if size and path not in why]
        usual = median(whole or [0])
        missing = {path: max(0.0, usual - sizes[path]) for path in short}
        for path, size in missing.items():
            lost[path] += size
        worst = sorted(why, key=lambda path: (-lost[path], labels[path]))
        stored, gone = sum(sizes.values()), sum(missing.values())
        return cls(
            len(sizes),
            sum(lost.values()) / max(1, stored + gone),
            gone,
            {labels[path]: torn[path] for path in worst if path in torn},
            {labels[path]: why[path] for path in worst if path not in sound},
            {labels[path]: why[path] for path in worst},
            tuple(sorted(labels[path] for path, size in sizes.items() if not size and path not in why)),
        )

    def error(self, most: float) -> str:
        """Why the input is not used, where more of it than the share `most` is damaged; else ""."""
        if self.share > most:
            said = f"{self.share:.1%} of the stored bytes are in files that cannot be read, or not to their end"
            short = ", a short one counted as large as the others" if self.missing else ""
            return f"{said}{short} ({list_damage(self.damaged)})"
        if len(self.unreadable) > most * self.num_files:
            return f"nothing can be read of {list_damage(self.unreadable)}, out of {self.num_files:,} files"
        return ""

    def warnings(self) -> list[str]:
        """What is to be said of input that is used."""
        said = list[str]()
        if self.torn:
            said.append(
                f"damaged, and read up to there: {list_damage(self.torn)}, {self.share:.1%} of the stored bytes; "
                "what is behind is lost: get these files again, then repeat the command"
            )
        if left := {name: why for name, why in self.unreadable.items() if name not in self.torn}:
            said.append(f"nothing can be read of {list_damage(left)}; mend these files, or leave them out")
        if self.empty:
            said.append(f"empty: {list_damage(dict.fromkeys(self.empty, ''))}; if they should not be, get them again")
        return said


def list_damage(files: dict[str, str]) -> str:
    """
    >>> list_damage({"a.gz": "truncated", "b.gz": "truncated", "c.txt": "not_text", "d.txt": ""})
    '4 files: a.gz (truncated), b.gz (truncated), c.txt (not_text), ...'
    """
    number = f"{len(files):,} files" if len(files) != 1 else "1 file"
    shown = [f"{name} ({why})" if why else name for name, why in list(files.items())[:_MOST_FILES]]
    return f"{number}: {', '.join(shown)}{', ...' if len(files) > _MOST_FILES else ''}"
