"""Positions where a text can be cut without any change of its token IDs, and the tokens of each part.

The IDs of a document are those of its whole text. Parts are encoded separately if this gives the same IDs, because it
is faster: the text is cut at white space if no token crosses white space. Otherwise the whole text is encoded.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from preprocessing.schema import Bools, Ints
from preprocessing.tokenization.model_proto import is_bpe

Cut = Literal["blanks", "marks", "rounding", "nowhere"]
"""Positions of safe cuts: `blanks`, white space; `marks`, also punctuation; `nowhere`, none. `rounding`: white space,
but rounding may change the choice between tokenizations whose total scores are nearly equal."""

LONGEST: Final = (
    10_000  # maximum characters to encode at once if the text can be cut at blanks: scores are sums in float32
)
_BLANKS: Final = " \n"
# Characters that older versions of Unicode also classify as punctuation.
_MARKS: Final = ".!?\u3002\uff01\uff1f\uff61\u300d\u300f\u201d\u2019\uff09"
_SPACE: Final = "\u2581"


def cuts_of(tokenizer: Tokenizer) -> Cut:
    """Return the safe cuts for a tokenizer of `tokenizers`.

    Only known pipelines that encode each word separately have safe cuts.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if any(not token.special or any(map(str.isspace, token.content)) for token in added):
        return "nowhere"
    words, folding = tokenizer.pre_tokenizer, tokenizer.normalizer
    if isinstance(words, pre_tokenizers.BertPreTokenizer) and isinstance(folding, normalizers.BertNormalizer):
        return "marks"
    plain = folding is None or isinstance(
        folding, normalizers.Replace
    )  # Replace changes only the name of a special token
    return "blanks" if isinstance(words, pre_tokenizers.WhitespaceSplit) and plain else "nowhere"


def cuts_of_sentencepiece(model: bytes, processor: SentencePieceProcessor, pieces: Iterable[str]) -> Cut:
    """Return the safe cuts for a sentencepiece model: blanks, unless a token crosses a blank or blanks are kept."""
    single = processor.normalize("a \n\nb") == f"{_SPACE}a{_SPACE}b"
    if not single or any(_SPACE in piece[1:] for piece in pieces):
        return "nowhere"
    return "blanks" if is_bpe(model) else "rounding"


def group_sentences(sentences: Sequence[str], cut: Cut) -> list[list[str]]:
    """Group the sentences so that the text can be cut between groups.

    >>> group_sentences(["One.", " Two.", "Three."], "blanks")
    [['One.'], [' Two.', 'Three.']]
    """
    starts = np.flatnonzero(find_group_starts(sentences, [len(sentences)], cut)).tolist()
    return [list(sentences[start:stop]) for start, stop in pairwise([*starts, len(sentences)])]


def find_group_starts(sentences: Sequence[str], num_sentences: Sequence[int], cut: Cut) -> Bools:
    """Whether a group begins at each sentence, bool [N]: the text can be cut between groups.

    `num_sentences`: the number of sentences of each document. A group has sentences of one document.

    >>> find_group_starts(["One.", " Two.", "Three.", "Four."], [3, 1], "blanks").tolist()
    [True, True, False, True]
    """
    begins_N = np.zeros(len(sentences), np.bool_)
    if cut != "nowhere" and sentences:
        code_S = np.frombuffer("".join(sentences).encode("utf-32-le", "surrogatepass"), "<u4")
        length_N = np.fromiter(map(len, sentences), np.int64, len(sentences))
        stop_N = np.cumsum(length_N)
        start_N = stop_N - length_N
        is_safe_N = np.isin(code_S[np.minimum(start_N, len(code_S) - 1)], _codes(_BLANKS)) if len(code_S) else begins_N
        if cut == "marks" and len(code_S):
            is_safe_N[1:] |= np.isin(code_S[stop_N[:-1] - 1], _codes(_MARKS))
        has_text_N = length_N > 0
        begins_N[1:] = is_safe_N[1:] & has_text_N[1:] & has_text_N[:-1]
    starts_D = np.cumsum([0, *num_sentences])[:-1]
    begins_N[starts_D[np.array(num_sentences, np.int64) > 0]] = True
    return begins_N


def _codes(characters: str) -> Ints:
    return np.array([ord(char) for char in characters], np.uint32)


def parts(text: str, cut: Cut) -> list[str]:
    """Split the text before blanks into parts of at most LONGEST characters; parts without a blank may be longer.

    >>> parts("One two.", "blanks")
    ['One two.']
    """
    if cut == "nowhere" or len(text) <= LONGEST:
        return [text]
    result, start = list[str](), 0
    while len(text) - start > LONGEST:
        stop = _blank(text, start + 1, start + LONGEST)
        if stop < 0:
            stop = min((at for mark in _BLANKS if (at := text.find(mark, start + LONGEST)) >= 0), default=len(text))
        result.append(text[start:stop])
        start = stop
    return [*result, text[start:]] if start < len(text) else result


def _blank(text: str, start: int, stop: int) -> int:
    return max(text.rfind(mark, start, stop) for mark in _BLANKS)


def counts(begin_S: Ints, lengths: Sequence[int]) -> list[int]:
    """Return the number of tokens of each sentence, from the start of each token and the length of each sentence.

    A token belongs to the sentence in which it begins.

    >>> counts(np.array([0, 2, 4, 9]), [3, 2, 1, 4])
    [2, 1, 0, 1]
    """
    start_N = np.cumsum([0, *lengths])[:-1]
    first_N = np.searchsorted(np.maximum.accumulate(begin_S), start_N)
    return np.diff(first_N, append=len(begin_S)).tolist()
