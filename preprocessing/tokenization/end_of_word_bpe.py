"""BPE with end-of-word suffixes (OpenAI's GPT, XLM). Such tokenizers can be loaded from directories but not trained."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Literal

from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization import tokenizer_json
from preprocessing.tokenization.part import (
    SAMPLE_MB,
    Scheme,
    TokenizerBuild,
    describe_padding,
    from_file,
    require_sizes,
)

END = "</w>"


@spec
class EndOfWordBPE:
    """BPE of OpenAI's GPT, read from its tokenizer.json (40,478 tokens).

    The last token of a word has an end-of-word suffix.
    """

    kind: Literal["ended_bpe"] = "ended_bpe"
    vocab_size: int = key(default=40478, doc="Number of tokens, special tokens included.")
    padded_vocab_size: int = key(
        default=0, doc="Rows of the token table if padded beyond vocab_size; 0: one per token."
    )
    path: str = key(default="", doc="Path to tokenizer.json, or to its directory.")

    roles: ClassVar[Mapping[str, str]] = {}
    special_roles: ClassVar[frozenset[str]] = frozenset()
    token_order: ClassVar[str] = "training"
    extra_ids: ClassVar[int] = 0
    languages: ClassVar[tuple[str, ...]] = ()
    language_sampling_alpha: ClassVar[float] = 1.0
    strips_marks: ClassVar[str] = ""
    is_of_bytes: ClassVar[bool] = False
    sample_mb: ClassVar[int] = SAMPLE_MB
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        require_sizes(self)

    def describe(self) -> str:
        return f"{self.vocab_size:,} BPE tokens with end-of-word suffix{describe_padding(self)}"

    def make(self, texts: Iterable[str]) -> TokenizerBuild:
        assert self.path, "this kind cannot be trained"
        return from_file(self.path, lambda path: tokenizer_json.read(tokenizer_json.find(path) or Path(path), self))

    def least_size(self, texts: Iterable[str]) -> int:
        return 0

    @staticmethod
    def reads(scheme: Scheme) -> bool:
        return scheme.model == "BPE" and scheme.at_end == END and not scheme.is_of_bytes

    @staticmethod
    def starts_word(piece: str) -> bool:
        return False  # the suffix of the previous token marks the start of a word

    @staticmethod
    def ends_word(piece: str) -> bool:
        return piece.endswith(END)

    @staticmethod
    def utf8(piece: str) -> bytes:
        return (f"{piece.removesuffix(END)} " if piece.endswith(END) else piece).encode()
