"""Single-sentence packing (MASS)."""

from typing import ClassVar, Literal

import numpy as np

from preprocessing.packing.packing_plan import EMITTED, Columns, PackingPlan, compact, row_of
from preprocessing.packing.parallel import ParallelSentences
from preprocessing.schema import Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides, key, spec
from preprocessing.tokenization import Frame, Vocab


@spec
class SingleSentence:
    """Single sentences: `</s> sentence </s>` (MASS, arXiv:1905.02450, 4.1).

    MASS and XLM's code use these special tokens. A sentence that is longer than a sequence is dropped, as in their
    code. With `languages`, each sequence has the language of its document. The name of the language must be part of the
    source of the text, as for packing `parallel`.
    """

    kind: Literal["single_sentence"] = "single_sentence"
    languages: tuple[str, ...] = key(
        default=(), doc="Language names, in the order of their numbers; []: sequences have no language."
    )

    possible_columns: ClassVar[Columns] = EMITTED | {"languages"}
    specials: ClassVar[tuple[str, ...]] = ("sep",)
    fresh: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    segments: ClassVar[int] = 1
    reuse_len: ClassVar[int] = 0
    label_says: ClassVar[str] = ""
    label_means: ClassVar[tuple[str, str]] = ("", "")
    required_annotations: ClassVar[frozenset[str]] = frozenset()
    both_ways: ClassVar[bool] = False
    partners: ClassVar[bool] = False
    counts_alone: ClassVar[bool] = False
    joins_shards: ClassVar[bool] = False
    kernel_gap: ClassVar[str] = "single_sentence"
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"languages": []},
        "small": {"languages": []},
    }  # the corpora of these scales have one language

    def __post_init__(self) -> None:
        ParallelSentences(languages=self.languages)  # checks the value

    @property
    def produced_columns(self) -> Columns:
        return EMITTED | {"languages"} if self.languages else EMITTED

    @property
    def least(self) -> int:
        return 3

    @property
    def frame(self) -> Frame:
        return Frame("sep A sep", "sep A sep sep B sep")

    def describe(self) -> str:
        return "single sentences"

    @property
    def _parallel(self) -> ParallelSentences:
        return ParallelSentences(translation_ratio=0, languages=self.languages)

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan sequences of at most length + lookahead tokens; `rng` is not used.

        Raises BadInput if a language is unknown.
        """
        stop_M = np.append(shard.sentence_at_M[1:], shard.offset_N1[-1:])[: len(shard.sentence_at_M)]
        fits_M = stop_M - shard.sentence_at_M <= length + lookahead - 2
        counts = {
            "documents": len(shard.offset_N1) - 1,
            "dropped_sentences": int((~fits_M).sum()),
            "rows": int(fits_M.sum()),
        }
        start_RP, stop_RP = (compact(at_M[fits_M, None]) for at_M in (shard.sentence_at_M, stop_M))
        if not self.languages:
            return PackingPlan(start_RP=start_RP, stop_RP=stop_RP, counts=counts)
        language_N1 = self._parallel.languages_of(shard, np.zeros(counts["documents"], dtype=np.int64))
        document_R = np.searchsorted(shard.offset_N1, start_RP[:, 0], side="right") - 1
        language_RP = language_N1[document_R].astype(np.int8)
        return PackingPlan(start_RP=start_RP, stop_RP=stop_RP, language_RP=language_RP, counts=counts)

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Return input_ids, token_type_ids, special_tokens_mask and word_starts of the i-th sequence.

        The column languages is included if the key `languages` is set.
        """
        start, stop = int(plan.start_RP[i, 0]), int(plan.stop_RP[i, 0])
        special_S = np.zeros(stop - start + 2, dtype=bool)
        special_S[[0, -1]] = True
        row = row_of(special_S, [(start, stop)], shard, vocab, wanted)
        if self.languages:
            row["languages"] = np.repeat(plan.language_RP[i], len(special_S))
        return row
