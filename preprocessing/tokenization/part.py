"""The interface of tokenizer kinds. Training, Vocab, checks, scales and reports use these attributes only."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

from preprocessing.errors import BadInput
from preprocessing.spec import ScaleOverrides, require
from preprocessing.stand_ins import require_itself

T = TypeVar("T")
SAMPLE_MB: Final = 100  # text for training a tokenizer; more text changes few tokens
_EXTENSIONS: Final = (".json", ".txt", ".model", ".bpe", ".vocab")  # file extensions of tokenizers


class TokenizerBuild(NamedTuple):
    """A trained or loaded tokenizer: `names`, role -> special token, and `files`, name -> content.

    `complete`: the file defines all its special tokens, even those outside the model's vocabulary. Otherwise a special
    token outside the model's vocabulary is missing in the file.
    """

    names: dict[str, str]
    files: dict[str, bytes]
    complete: bool = False


class Scheme(NamedTuple):
    """The model type of a tokenizer.json, and how its tokens mark word boundaries."""

    model: str  # type: WordPiece, BPE, Unigram, ...
    is_of_bytes: bool  # tokens consist of bytes, spaces included
    marks_spaces: bool  # a token at the start of a word begins with U+2581
    inside: str | None  # prefix of a token inside a word
    at_end: str | None  # suffix of a token at the end of a word

    @property
    def marks(self) -> str:
        """Description of the marks of word boundaries, for an error message."""
        if self.inside:
            return f"prefix {self.inside!r} inside words"
        return f"suffix {self.at_end!r} at the end of words" if self.at_end else "no mark of spaces"


class TokenizerPart(Protocol):
    """A member of the union TokenizerSpec: the tokenizer settings of a recipe."""

    roles: ClassVar[Mapping[str, str]]
    """Roles of special tokens that this kind can have, and the setting that adds each ("extra_ids 100"); "" if none."""
    strips_marks: ClassVar[str]
    """Name of the key that removes accents and other combining marks from the text; "" if there is none."""
    is_of_bytes: ClassVar[bool]
    """Whether each character of a token represents one byte of the text."""
    sample_mb: ClassVar[int]
    """Maximum amount of training text in MB."""
    scale_overrides: ClassVar[ScaleOverrides]
    """Values of keys that `--scale` sets, by scale."""

    @property
    def kind(self) -> str:
        """Name of this kind in a recipe and in specials.json."""

    @property
    def vocab_size(self) -> int:
        """Maximum number of tokens."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the model's token table if it is padded beyond `vocab_size`; 0: one per token."""

    @property
    def path(self) -> str:
        """Directory or file of a tokenizer to load; "": train one."""

    @property
    def token_order(self) -> str:
        """Order of token IDs in a trained tokenizer: "training", or "frequency" (most frequent first)."""

    @property
    def extra_ids(self) -> int:
        """Number of sentinel tokens, which are the last tokens."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages by which training texts are sampled; empty without sampling."""

    @property
    def language_sampling_alpha(self) -> float:
        """Exponent of language sampling: q proportional to p^alpha."""

    @property
    def special_roles(self) -> frozenset[str]:
        """Roles of a trained tokenizer, among pad, unk, cls, sep, mask and sentinel."""

    def describe(self) -> str:
        """Describe size and kind in one line, e.g. "30,522 lower-cased WordPiece tokens"."""

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        """Train on whole documents, or read `path`. Raises BadInput if this is not possible."""

    def least_size(self, texts: Iterable[str]) -> int:
        """Return the minimum vocab_size for the characters of these texts and special tokens; 0 if there is none."""

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        """Return whether this kind supports a tokenizer.json with this scheme."""

    @staticmethod
    def starts_word(piece: str) -> bool:
        """Return whether a word starts with this ordinary token."""

    @staticmethod
    def ends_word(piece: str) -> bool:
        """Return whether every token after this one starts a word."""

    @staticmethod
    def utf8(piece: str) -> bytes:
        """Return the text of a token in UTF-8, including the space before a word."""


def require_sizes(spec: TokenizerPart, least: int = 1) -> None:
    """Raise ValueError unless vocab_size, padded_vocab_size and extra_ids are consistent.

    `vocab_size` must be at least `least`, and include all special tokens and one ordinary token.
    """
    size = spec.vocab_size
    require(size > 0, "tokenizer.vocab_size", size, f"an integer of at least {least}")
    fits = 0 <= spec.extra_ids < size
    require(
        fits, "tokenizer.extra_ids", spec.extra_ids, f"an integer of at least 0, below tokenizer.vocab_size ({size})"
    )
    least = max(least, len(spec.special_roles - {"sentinel"}) + spec.extra_ids + 1)
    require(size >= least, "tokenizer.vocab_size", size, f"an integer of at least {least}")
    is_valid = spec.padded_vocab_size == 0 or spec.padded_vocab_size >= size
    require(
        is_valid,
        "tokenizer.padded_vocab_size",
        spec.padded_vocab_size,
        f"0 (one row per token), or at least tokenizer.vocab_size ({size})",
    )


def too_small(size: int, least: int, of_sample: bool = False) -> BadInput:
    """Return the error for a vocab_size that is too small for the characters of a text or of its sample.

    >>> print(too_small(4096, 7015))
    tokenizer.vocab_size: invalid value 4096, expected at least 7015 for this text; set data.tokenizer.vocab_size=8192
    """
    text = "a sample of this text" if of_sample else "this text"
    suggestion = _suggest_size(
        least * 5 // 3 if of_sample else least
    )  # 50 MB of Chinese have 1.6 times as many characters as 2 MB
    return BadInput(
        f"tokenizer.vocab_size: invalid value {size}, expected at least {least} for {text}; set "
        f"data.tokenizer.vocab_size={suggestion}"
    )


def _suggest_size(least: int) -> int:
    """Return a power of two of at least `least` / 0.9, so that a tenth of the tokens can be longer than a character.

    >>> _suggest_size(7015), _suggest_size(8000)
    (8192, 16384)
    """
    return 1 << (least * 10 // 9).bit_length()


def describe_padding(spec: TokenizerPart) -> str:
    """Return ", in a table of 32,128 rows" for a description if the token table is padded; otherwise ""."""
    return f", in a table of {spec.padded_vocab_size:,} rows" if spec.padded_vocab_size > spec.vocab_size else ""


def from_file(file: str, read: Callable[..., T], *settings: object) -> T:
    """Return read(path, *settings) for a user's file; convert errors to BadInput."""
    path = Path(file)
    for each in sorted(path.glob("*.*")) if path.is_dir() else [path]:
        if each == path or each.suffix in _EXTENSIONS:
            require_itself(each)
    try:
        return read(path, *settings)
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(
            f"tokenizer.path: {error.filename}: {error.strerror}; set data.tokenizer.path to an existing tokenizer"
        ) from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise BadInput(
            f"tokenizer.path: {file}: not a valid tokenizer of this kind; change data.tokenizer.kind or the path"
        ) from None
