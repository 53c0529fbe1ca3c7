"""The facts that each kind of vocabulary states about itself: training, Vocab, checks, scales and reports read them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

from preprocessing.errors import BadInput
from preprocessing.spec import ScaleOverrides, require
from preprocessing.stand_ins import require_itself

T = TypeVar("T")
SAMPLE_MB: Final = 100  # of text to train a vocabulary on: more changes few pieces
_OF_VOCABULARIES: Final = (".json", ".txt", ".model", ".bpe", ".vocab")  # endings of their files


class TokenizerBuild(NamedTuple):
    """What a kind makes of texts, or of a file: its special tokens, role -> piece, and its files, name -> content.

    `complete`: a special token that is not among the pieces of the model is the file's own, not one that was missing.
    """

    names: dict[str, str]
    files: dict[str, bytes]
    complete: bool = False


class Scheme(NamedTuple):
    """What the model of a tokenizer.json is, and how its pieces tell where words begin."""

    model: str  # the type of the model: WordPiece, BPE, Unigram, ...
    is_of_bytes: bool  # pieces are of bytes, spaces among them
    marks_spaces: bool  # a piece that begins a word begins with U+2581
    inside: str | None  # what a piece inside of a word begins with
    at_end: str | None  # what a piece at the end of a word ends with

    @property
    def marks(self) -> str:
        """How words are marked, for an error."""
        if self.inside:
            return f"{self.inside!r} inside of words"
        return f"{self.at_end!r} at their ends" if self.at_end else "no mark of spaces"


class TokenizerPart(Protocol):
    """A part of the union TokenizerSpec: what a recipe says about a vocabulary."""

    roles: ClassVar[Mapping[str, str]]
    """Roles of the special tokens that one of its kind can have, and the keys it takes ("" none): "sentinels 100"."""
    strips_marks: ClassVar[str]
    """The key with which one takes accents and other combining marks off the text; "" where there is none."""
    is_of_bytes: ClassVar[bool]
    """Whether each character of a piece stands for a byte of the text."""
    sample_mb: ClassVar[int]
    """MB of text that one is trained on, at most."""
    scale_overrides: ClassVar[ScaleOverrides]
    """What `--scale` puts into it."""

    @property
    def kind(self) -> str:
        """Its name in a recipe and in specials.json."""

    @property
    def vocab_size(self) -> int:
        """Pieces, at most."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the net's table, where it is filled up beyond `vocab_size`; 0: one for each piece."""

    @property
    def path(self) -> str:
        """Path of a vocabulary to load, a folder or a file; "": train one."""

    @property
    def token_order(self) -> str:
        """How a trained one numbers its pieces: "training" (as found) or "frequency" (frequent ones first)."""

    @property
    def extra_ids(self) -> int:
        """How many of its last pieces stand for a span of text."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that its texts are sampled by; empty where they are not."""

    @property
    def language_sampling_alpha(self) -> float:
        """Exponent of that sampling: q proportional to p^alpha."""

    @property
    def special_roles(self) -> frozenset[str]:
        """Which of pad, unk, cls, sep, mask and sentinel a trained one has."""

    def describe(self) -> str:
        """Its size and kind in one line: "30,522 lower-cased word pieces"."""

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        """Train on whole documents, or read `path`. BadInput where neither gives such a vocabulary."""

    def least_size(self, texts: Iterable[str]) -> int:
        """How many pieces the characters of these texts need, special ones included; 0 where any number does."""

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        """Whether a tokenizer.json of this scheme is of its kind: it can tell where words begin in it."""

    @staticmethod
    def starts_word(piece: str) -> bool:
        """Whether a word begins with this ordinary piece."""

    @staticmethod
    def ends_word(piece: str) -> bool:
        """Whether a word begins after this piece, whatever follows."""

    @staticmethod
    def utf8(piece: str) -> bytes:
        """The text that a piece stands for, in UTF-8, with the space in front of a word."""


def require_sizes(spec: TokenizerPart, least: int = 1) -> None:
    """ValueError unless size, rows and sentinels of a vocabulary are possible together.

    `vocab_size` has room for the special tokens and an ordinary one, and is `least` or more.
    """
    size = spec.vocab_size
    require(size > 0, "tokenizer.vocab_size", size, f"a whole number from {least} up")
    fits = 0 <= spec.extra_ids < size
    require(fits, "tokenizer.extra_ids", spec.extra_ids, f"a number from 0 up, below tokenizer.vocab_size ({size})")
    least = max(least, len(spec.special_roles - {"sentinel"}) + spec.extra_ids + 1)
    require(size >= least, "tokenizer.vocab_size", size, f"a whole number from {least} up")
    enough = spec.padded_vocab_size == 0 or spec.padded_vocab_size >= size
    require(
        enough,
        "tokenizer.padded_vocab_size",
        spec.padded_vocab_size,
        f"0 (as many as pieces), or tokenizer.vocab_size ({size}) or more",
    )


def too_small(size: int, least: int, of_sample: bool = False) -> BadInput:
    """The error for a vocabulary with fewer pieces than the characters of a text need, or those of a sample of it.

    >>> print(too_small(4096, 7015))
    tokenizer.vocab_size is 4096, the characters of this text alone need 7015; write data.tokenizer.vocab_size=8192
    """
    text = "a sample of this text" if of_sample else "this text"
    enough = _roomy(least * 5 // 3 if of_sample else least)  # 50 MB of Chinese have 1.6 times as many as 2 MB
    return BadInput(
        f"tokenizer.vocab_size is {size}, the characters of {text} alone need {least}; write "
        f"data.tokenizer.vocab_size={enough}"
    )


def _roomy(least: int) -> int:
    """The next power of two that leaves a tenth of the pieces for more than characters.

    >>> _roomy(7015), _roomy(8000)
    (8192, 16384)
    """
    return 1 << (least * 10 // 9).bit_length()


def described_table(spec: TokenizerPart) -> str:
    """The end of a description: ", in a table of 32,128 rows" where the table is larger than the vocabulary, or ""."""
    return f", in a table of {spec.padded_vocab_size:,} rows" if spec.padded_vocab_size > spec.vocab_size else ""


def from_file(file: str, read: Callable[..., T], *settings: object) -> T:
    """What `read` makes of a user's file and the settings; whatever goes wrong is BadInput."""
    path = Path(file)
    for each in sorted(path.glob("*.*")) if path.is_dir() else [path]:
        if each == path or each.suffix in _OF_VOCABULARIES:
            require_itself(each)
    try:
        return read(path, *settings)
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(f"tokenizer.path: {error.filename}: {error.strerror}; name a vocabulary that exists") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise BadInput(
            f"tokenizer.path: {file}: cannot be read as this kind of vocabulary; change the kind or the file"
        ) from None
