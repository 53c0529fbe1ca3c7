"""A sample of a corpus before anything is read: what it tells is said at once, not after all of the text."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from pipeline.readers import Split, plan_splits, records
from pipeline.spec import Corpus
from pipeline.steps.clean import Cleaner, Tally, cleaned
from preprocessing.vocab import VocabSpec, too_small

_PLACES: Final = 16
_BYTES: Final = 2 << 20  # half a second of reading
_OPENED: Final = 1 << 14  # bytes that opening one more file counts for


def require_room(spec: VocabSpec, corpus: Corpus) -> None:
    """BadInput where a sample of the text has more characters than a vocabulary has pieces.

    A sample does not prove that there is room: training a vocabulary asks again.
    """
    least = spec.least_size(documents(corpus))
    if least > spec.size:
        raise too_small(spec.size, least, of_sample=_size(_pieces(corpus)) > _BYTES)


def about_how_many(corpus: Corpus) -> int:
    """How many documents the input has that cleaning keeps, by the same sample: a guess where it has more than 2 MB."""
    splits = _pieces(corpus)
    kept, read, total = 0, 0, _size(splits)
    chosen = [0] if total <= _BYTES else _spread([split.weight for split in splits])
    cleaner = Cleaner(replace(corpus.clean, repair=False, rules=(), mask=()))
    for start, stop in zip(chosen, [*chosen[1:], len(splits)], strict=True):
        left = _BYTES // len(chosen)
        for split in splits[start:stop]:
            tally = Tally()
            for _ in cleaned(records(split, corpus.clean.max_chars), cleaner, tally):
                if tally.ledger.seen.bytes >= left:
                    break
            kept, read = kept + tally.ledger.kept.documents, read + tally.ledger.seen.bytes
            left -= tally.ledger.seen.bytes
            if total > _BYTES and left <= 0:
                break
    return kept if total <= _BYTES else round(kept * total / max(read, 1))


def documents(corpus: Corpus) -> Iterator[str]:
    """The first documents at 16 places of the input, 2 MB in all, cleaned but not repaired; always the same ones.

    Of an input of up to 2 MB these are all.
    """
    splits = _pieces(corpus)
    is_all = _size(splits) <= _BYTES
    chosen = [0] if is_all else _spread([split.weight for split in splits])
    cleaner = Cleaner(replace(corpus.clean, repair=False, rules=(), mask=()))
    for start, stop in zip(chosen, [*chosen[1:], len(splits)], strict=True):
        left = _BYTES // len(chosen)
        for split in splits[start:stop]:
            for document in cleaned(records(split, corpus.clean.max_chars), cleaner, Tally()):
                yield document.text[: max(0, left)]  # at most as many bytes as characters are left
                left -= len(document.text.encode())
                if left <= 0:
                    break
            left -= 0 if is_all else _OPENED
            if left <= 0:
                break


def _pieces(corpus: Corpus) -> list[Split]:
    splits = plan_splits(corpus.sources)
    return [replace(split, pieces=(piece,)) for split in splits for piece in split.pieces if piece.file.size]


def _size(splits: Sequence[Split]) -> int:
    return sum(split.weight for split in splits)


def _spread(weight_N: Sequence[int]) -> list[int]:
    """Which of these lie at 16 places that are evenly far from each other.

    >>> _spread([10, 10, 300]), _spread([1] * 48)[:4]
    ([0, 2], [1, 4, 7, 10])
    """
    end_N = list(accumulate(weight_N))
    places = [(2 * number + 1) * end_N[-1] / (2 * _PLACES) for number in range(_PLACES)] if end_N else []
    return sorted({bisect_left(end_N, place) for place in places})
