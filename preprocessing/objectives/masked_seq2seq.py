"""Masked sequence to sequence: the decoder predicts the masked tokens (MASS, arXiv:1905.02450)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.masking import Masking
from preprocessing.objectives.mlm import MaskedLM
from preprocessing.objectives.part import Attention
from preprocessing.schema import Ints, Row
from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class MaskedSeq2Seq:
    """Masked sequence to sequence: the decoder predicts the selected tokens (MASS 3.1).

    The encoder reads the sequence with its selected tokens masked as in objective `mlm`. Before each selected token,
    the decoder reads the token that precedes it in the sequence, with the position of that token.

    With `hide_masked_from_decoder` the decoder does not attend to the encoder's states at [MASK]. The reference
    does this with `enc_mask`, but not in its code for summarization. With one selected token this is masked language
    modeling. With all tokens selected it is a causal language model, since the encoder reads only masks. The reference
    may also predict the end token of a sentence; here only ordinary tokens are selected.
    """

    kind: Literal["masked_seq2seq"] = "masked_seq2seq"
    mask_replace_prob: float = key(default=0.8, doc="Probability that a selected token is replaced by [MASK].")
    random_replace_prob: float = key(
        default=0.1, doc="Probability that a selected token is replaced by a random token."
    )
    hide_masked_from_decoder: bool = key(default=True, doc="Whether the decoder ignores encoder states at [MASK].")

    required_columns: ClassVar[frozenset[str]] = frozenset({"input_ids", "hits"})
    specials: ClassVar[tuple[str, ...]] = ("sep", "mask")
    lookahead: ClassVar[int] = 0
    possible_columns: ClassVar[frozenset[str]] = frozenset({"labels", "positions", "source_input_ids", "source_seen"})
    segments: ClassVar[int] = 1
    reads_segments: ClassVar[int] = 1
    selects: ClassVar[bool] = False
    two_sided: ClassVar[bool] = True
    attention: ClassVar[Attention] = "model"
    target: ClassVar[str] = "the fragment"
    perm_size: ClassVar[int] = 0
    remark: ClassVar[str] = ""
    kernel_gap: ClassVar[str] = "masked_seq2seq"
    scale_overrides: ClassVar[ScaleOverrides] = {}

    def __post_init__(self) -> None:
        MaskedLM(
            mask_replace_prob=self.mask_replace_prob, random_replace_prob=self.random_replace_prob
        )  # checks the values

    @property
    def produced_columns(self) -> frozenset[str]:
        """Columns that the objective produces."""
        return frozenset(
            {"labels", "positions", "source_input_ids"} | ({"source_seen"} if self.hide_masked_from_decoder else set())
        )

    def describe(self) -> str:
        shares = MaskedLM(
            mask_replace_prob=self.mask_replace_prob, random_replace_prob=self.random_replace_prob
        ).describe_shares()
        visible = "" if self.hide_masked_from_decoder else ", which also attends to the masks"
        return f"masked for the encoder ({shares}), predicted by the decoder{visible}"

    def shares(self, masking: Masking) -> tuple[float, float]:
        return 1.0, masking.predicted

    def raw_length(self, length: int, masking: Masking) -> int:
        """Return the number of tokens to take from the text, so that neither side exceeds `length` tokens."""
        return length

    def most_sentinels(self, num_tokens: int, masking: Masking) -> int:
        return 0

    def frame(self, frame: Frame) -> Frame:
        return frame

    def __call__(self, row: Row, vocab: Vocab, rng: np.random.Generator) -> Row:
        """Return the transformed sequence with its labels.

        >>> from preprocessing.rng import key
        >>> class Tiny:
        ...     size, sep, mask, special_ids = 100, 3, 4, (0, 1, 2, 3, 4)
        >>> row = {"input_ids": np.array([2, 11, 12, 13, 14, 3]), "hits": np.array([0, 0, 1, 1, 0, 0])}
        >>> made = MaskedSeq2Seq(mask_replace_prob=1.0, random_replace_prob=0.0)(row, Tiny, key(0, "masking").at(0, 0))
        >>> made["source_input_ids"].tolist(), made["source_seen"].astype(int).tolist()
        ([2, 11, 4, 4, 14, 3], [1, 1, 0, 0, 1, 1])
        >>> made["input_ids"].tolist(), made["positions"].tolist(), made["labels"].tolist()
        ([11, 12], [1, 2], [12, 13])
        """
        row = row if row["hits"].any() else row | {"hits": _select_one(row, vocab, rng)}
        masked = MaskedLM(mask_replace_prob=self.mask_replace_prob, random_replace_prob=self.random_replace_prob)(
            row, vocab, rng
        )
        ids_S, at_M = row["input_ids"], np.flatnonzero(row["hits"])
        before_M = np.maximum(at_M - 1, 0)
        ids_M = np.full(len(at_M), vocab.sep, dtype=np.int32)
        ids_M[at_M > 0] = ids_S[before_M[at_M > 0]]
        made = {name: column for name, column in row.items() if not np.ndim(column)} | {
            "input_ids": ids_M,
            "token_type_ids": np.zeros(len(at_M), dtype=np.int8),
            "positions": before_M.astype(np.int32),
            "labels": ids_S[at_M].astype(np.int32),
            "source_input_ids": masked["input_ids"],
        }
        if self.hide_masked_from_decoder:
            made["source_seen"] = masked["input_ids"] != vocab.mask
        if "languages" in row:
            made |= {"languages": row["languages"][at_M], "source_languages": row["languages"]}
        return made


def _select_one(row: Row, vocab: Vocab, rng: np.random.Generator) -> Ints:
    """Return the column `hits` with one selected token, an ordinary one if there is any.

    The decoder needs at least one target.
    """
    ordinary = np.flatnonzero(~np.isin(row["input_ids"], vocab.special_ids))
    hit_S = np.zeros(len(row["input_ids"]), dtype=np.int32)
    hit_S[rng.choice(ordinary if len(ordinary) else len(hit_S))] = 1
    return hit_S
