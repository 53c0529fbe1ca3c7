"""What a recipe says about a vocabulary: a class for each kind."""

from typing import ClassVar, Literal

from preprocessing.spec import require, spec
from preprocessing.vocab import byte_bpe


def _require_size(size: int) -> None:
    require(size >= 1, "vocab.size", size, "a whole number from 1 up")


def _require_rows(rows: int, size: int) -> None:
    require(rows == 0 or rows >= size, "vocab.rows", rows, f"0 (as many as pieces), or vocab.size ({size}) or more")


def _require_sentinels(sentinels: int, size: int) -> None:
    require(0 <= sentinels < size, "vocab.sentinels", sentinels, f"a number from 0 up, below vocab.size ({size})")


@spec
class WordPiece:
    """BERT's vocabulary (arXiv:1810.04805): whole words, and pieces inside a word that begin with ##.

    A trained one numbers its pieces as training found them, or by falling frequency, as adaptive tables want it.
    """

    kind: Literal["wordpiece"] = "wordpiece"
    size: int = 30522
    lowercase: bool = True
    order: Literal["training", "frequency"] = "training"
    rows: int = 0  # of the net's table, where it is filled up beyond `size`; 0: one for each piece
    file: str = ""  # vocab.txt or tokenizer.json; empty: train one

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)


@spec
class ByteBPE:
    """GPT-2's vocabulary over bytes, to which no text is unknown; RoBERTa's has other special tokens."""

    kind: Literal["byte_bpe"] = "byte_bpe"
    size: int = 50257
    specials: byte_bpe.Layout = "gpt2"
    rows: int = 0  # as for WordPiece
    file: str = ""  # tokenizer.json, or a folder with vocab.json + merges.txt or encoder.json + vocab.bpe

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)


@spec
class Unigram:
    """A unigram language model over pieces (arXiv:1804.10959).

    A trained one has the special tokens of ALBERT; what a file has, it says: T5 has neither [CLS] nor [MASK].
    """

    kind: Literal["unigram"] = "unigram"
    size: int = 32000
    lowercase: bool = False  # case is folded, accents stay: sentencepiece's nmt_nfkc_cf
    sentinels: int = 0  # of these, the last ones: what stands for a span of text (T5 has 100)
    rows: int = 0  # as for WordPiece
    file: str = ""  # spiece.model or tokenizer.json

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)
        _require_sentinels(self.sentinels, self.size)


@spec
class SentencePieceBPE:
    """BPE over characters (arXiv:1508.07909) as sentencepiece does it; special tokens as for Unigram.

    Languages are sampled with q proportional to p^alpha (arXiv:1901.07291, 3.1), p being their share of the text: the
    most frequent one is read once at most, the others more often. A language is named by the source of the text, as
    for the segment `parallel`.
    """

    kind: Literal["sentencepiece_bpe"] = "sentencepiece_bpe"
    size: int = 32000
    lowercase: bool = False  # as for Unigram
    sentinels: int = 0  # as for Unigram
    alpha: float = 1.0  # 1: languages in proportion to their text
    languages: tuple[str, ...] = ()  # none named: there is one
    rows: int = 0  # as for WordPiece
    file: str = ""  # spiece.model

    def __post_init__(self) -> None:
        _require_size(self.size)
        _require_rows(self.rows, self.size)
        _require_sentinels(self.sentinels, self.size)
        require(0 <= self.alpha <= 1, "vocab.alpha", self.alpha, "a share from 0 to 1")


@spec
class WholeWords:
    """Whole words, split at white space: for text that is tokenised already (Transformer-XL, arXiv:1901.02860)."""

    kind: Literal["words"] = "words"
    size: int = 267735
    rows: int = 0  # as for WordPiece
    file: str = ""  # vocab.txt

    order: ClassVar[str] = "frequency"

    def __post_init__(self) -> None:
        require(self.size >= 3, "vocab.size", self.size, "a whole number from 3 up")
        _require_rows(self.rows, self.size)


@spec
class SingleBytes:
    """The bytes of UTF-8, those that the text has, one by one (Transformer-XL on enwik8)."""

    kind: Literal["bytes"] = "bytes"
    size: int = 258
    rows: int = 0  # as for WordPiece
    file: str = ""  # vocab.txt

    order: ClassVar[str] = "frequency"

    def __post_init__(self) -> None:
        require(self.size >= 3, "vocab.size", self.size, "a whole number from 3 up")
        _require_rows(self.rows, self.size)


VocabSpec = WordPiece | ByteBPE | Unigram | SentencePieceBPE | WholeWords | SingleBytes


def table_rows(spec: VocabSpec) -> int:
    """Rows of the token table of a net that reads this vocabulary.

    >>> table_rows(Unigram(size=32_100, rows=32_128)), table_rows(Unigram(size=30_000))
    (32128, 30000)
    """
    return spec.rows or spec.size
