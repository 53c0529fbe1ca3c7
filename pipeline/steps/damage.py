"""Damage of the input by file, in stored bytes. All bytes of a truncated file count as damaged.

The size of a missing part is unknown, so neither its documents nor its bytes can be counted. A truncated file smaller
than usual is counted with the median size of undamaged files, because it may have lost that much.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from pipeline.readers import CUT_OFF, TRAILING, InputSplit
from pipeline.steps.clean import Damage

_MOST_FILES: Final = 3  # files that a message lists


@dataclass(frozen=True)
class SplitDamage:
    """The damage in a set of splits, from their seals."""

    num_files: int
    # fraction of stored bytes: truncated files including `missing`, and the unreadable bytes of other files
    share: float
    missing: float  # bytes by which truncated files are smaller than the median of undamaged files
    torn: dict[str, str]  # files that end early or have extra bytes at the end, with the reason
    unreadable: dict[str, str]  # files without a readable document, with the reason
    damaged: dict[str, str]  # all damaged files with the reason, worst first
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
        stored, total_missing = sum(sizes.values()), sum(missing.values())
        return cls(
            len(sizes),
            sum(lost.values()) / max(1, stored + total_missing),
            total_missing,
            {labels[path]: torn[path] for path in worst if path in torn},
            {labels[path]: why[path] for path in worst if path not in sound},
            {labels[path]: why[path] for path in worst},
            tuple(sorted(labels[path] for path, size in sizes.items() if not size and path not in why)),
        )

    def error(self, most: float) -> str:
        """The reason to reject the input if more than the fraction `most` is damaged, else ""."""
        if self.share > most:
            message = f"{self.share:.1%} of the stored bytes are in unreadable or truncated files"
            short = ", counting a short truncated file with the median size" if self.missing else ""
            return f"{message}{short} ({list_damage(self.damaged)})"
        if len(self.unreadable) > most * self.num_files:
            return f"no readable document in {list_damage(self.unreadable)}, out of {self.num_files:,} files"
        return ""

    def warnings(self) -> list[str]:
        """Warnings about accepted input."""
        messages = list[str]()
        if self.torn:
            messages.append(
                f"damaged files, {self.share:.1%} of the stored bytes, are read up to the damage: "
                f"{list_damage(self.torn)}; to read all of them, replace these files and repeat the command"
            )
        if left := {name: why for name, why in self.unreadable.items() if name not in self.torn}:
            messages.append(f"no readable document in {list_damage(left)}; repair or exclude these files")
        if self.empty:
            messages.append(f"empty: {list_damage(dict.fromkeys(self.empty, ''))}; if this is unexpected, replace them")
        return messages


def list_damage(files: dict[str, str]) -> str:
    """The number of damaged files, and the first of them with the reasons.

    >>> list_damage({"a.gz": "truncated", "b.gz": "truncated", "c.txt": "not_text", "d.txt": ""})
    '4 files: a.gz (truncated), b.gz (truncated), c.txt (not_text), ...'
    """
    number = f"{len(files):,} files" if len(files) != 1 else "1 file"
    shown = [f"{name} ({why})" if why else name for name, why in list(files.items())[:_MOST_FILES]]
    return f"{number}: {', '.join(shown)}{', ...' if len(files) > _MOST_FILES else ''}"
