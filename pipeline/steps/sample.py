"""A sample of a corpus, read before the job starts, so that problems are reported early."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pipeline.readers import SAMPLE_BYTES, pieces_of, records, size_of, spread
from pipeline.spec import Corpus
from pipeline.steps.clean import Cleaner, CleaningTally, clean_records
from preprocessing.tokenization import TokenizerSpec, too_small

_OPENED: Final = 1 << 14  # opening a split counts as reading this number of bytes


def require_room(spec: TokenizerSpec, corpus: Corpus) -> None:
    """Raise BadInput if the vocabulary is smaller than the number of characters in a sample of the text.

    A sample cannot prove that the vocabulary is large enough: training checks again.
    """
    least = spec.least_size(documents(corpus))
    if least > spec.vocab_size:
        raise too_small(spec.vocab_size, least, of_sample=size_of(pieces_of(corpus.sources)) > SAMPLE_BYTES)


def documents(corpus: Corpus) -> Iterator[str]:
    """Documents at 16 positions of the input, 2 MB in total, cleaned but not repaired. The sample is deterministic.

    An input of up to 2 MB is read completely.
    """
    splits = pieces_of(corpus.sources)
    is_all = size_of(splits) <= SAMPLE_BYTES
    chosen = [0] if is_all else spread([split.weight for split in splits])
    cleaner = Cleaner(replace(corpus.clean, fix_text=False, filters=(), mask_pii=()))
    for start, stop in zip(chosen, [*chosen[1:], len(splits)], strict=True):
        left = SAMPLE_BYTES // len(chosen)
        for split in splits[start:stop]:
            for document in clean_records(records(split, corpus.clean.max_chars), cleaner, CleaningTally()):
                yield document.text[: max(0, left)]  # a character has at least one byte
                left -= len(document.text.encode())
                if left <= 0:
                    break
            left -= 0 if is_all else _OPENED
            if left <= 0:
                break
