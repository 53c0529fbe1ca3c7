"""Where a text can be cut so that the ids of its parts are those of the whole, and which tokens a part then has.

The ids of a document are those of its text as a whole. Parts are worked on alone where that is the same, as it is
faster so: at blanks, where no piece reaches over one. Elsewhere the tokens are looked for in the whole.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from preprocessing.schema import Ints
from preprocessing.tokenization.model_proto import is_bpe

Cut = Literal["blanks", "marks", "rounding", "nowhere"]
"""What a cut lies at: white space, also punctuation; white space, but for sums of scores that are nearly equal, which
rounding decides; or nothing for sure."""

LONGEST: Final = 10_000  # characters whose ids are looked for at once where blanks cut: scores are sums in float32
_BLANKS: Final = " \n"
_MARKS: Final = (
    ".!?\u3002\uff01\uff1f\uff61\u300d\u300f\u201d\u2019\uff09"  # which Unicode has called punctuation for long
)
_SPACE: Final = "\u2581"


def cuts_of(tokenizer: Tokenizer) -> Cut:
    """What cuts a text for a tokenizer of `tokenizers`: only pipelines that are known to look at single words."""
    added = tokenizer.get_added_tokens_decoder().values()
    if any(not token.special or any(map(str.isspace, token.content)) for token in added):
        return "nowhere"
    words, folding = tokenizer.pre_tokenizer, tokenizer.normalizer
    if isinstance(words, pre_tokenizers.BertPreTokenizer) and isinstance(folding, normalizers.BertNormalizer):
        return "marks"
    plain = folding is None or isinstance(folding, normalizers.Replace)  # of the name of a special token
    return "blanks" if isinstance(words, pre_tokenizers.WhitespaceSplit) and plain else "nowhere"


def cuts_of_sentencepiece(model: bytes, processor: SentencePieceProcessor, pieces: Iterable[str]) -> Cut:
    """What cuts a text for a model of sentencepiece: blanks, unless a piece reaches over one or blanks are kept."""
    single = processor.normalize("a \n\nb") == f"{_SPACE}a{_SPACE}b"
    if not single or any(_SPACE in piece[1:] for piece in pieces):
        return "nowhere"
    return "blanks" if is_bpe(model) else "rounding"


def group_sentences(sentences: Sequence[str], cut: Cut) -> list[list[str]]:
    """The sentences in groups, between which the text can be cut.

    >>> group_sentences(["One.", " Two.", "Three."], "blanks")
    [['One.'], [' Two.', 'Three.']]
    """
    groups = list[list[str]]()
    for sentence in sentences:
        last = groups[-1][-1] if groups else ""
        if groups and not _is_cut(last, sentence, cut):
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
    return groups


def _is_cut(before: str, after: str, cut: Cut) -> bool:
    if cut == "nowhere" or not before or not after:
        return False
    return after[0] in _BLANKS or (cut == "marks" and before[-1] in _MARKS)


def parts(text: str, cut: Cut) -> list[str]:
    """The text in parts of at most LONGEST characters that begin with a blank; longer ones where it has none.

    >>> parts("One two.", "blanks")
    ['One two.']
    """
    if cut == "nowhere" or len(text) <= LONGEST:
        return [text]
    found, start = list[str](), 0
    while len(text) - start > LONGEST:
        stop = _blank(text, start + 1, start + LONGEST)
        if stop < 0:
            stop = min((at for mark in _BLANKS if (at := text.find(mark, start + LONGEST)) >= 0), default=len(text))
        found.append(text[start:stop])
        start = stop
    return [*found, text[start:]] if start < len(text) else found


def _blank(text: str, start: int, stop: int) -> int:
    return max(text.rfind(mark, start, stop) for mark in _BLANKS)


def counts(begin_S: Ints, lengths: Sequence[int]) -> list[int]:
    """How many of the tokens that begin at these places each of the sentences of these lengths has.

    A token belongs to the sentence that it begins in.

    >>> counts(np.array([0, 2, 4, 9]), [3, 2, 1, 4])
    [2, 1, 0, 1]
    """
    start_N = np.cumsum([0, *lengths])[:-1]
    first_N = np.searchsorted(np.maximum.accumulate(begin_S), start_N)
    return np.diff(first_N, append=len(begin_S)).tolist()
