"""Text in several languages: monolingual sequences and translation pairs (XLM, arXiv:1901.07291)."""

import re
from typing import ClassVar, Final, Literal, NamedTuple

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.packing.packing_plan import EMITTED, Columns, PackingPlan, compact, row_of, windows
from preprocessing.schema import Bools, Ints, Row
from preprocessing.shards import Shard
from preprocessing.spec import ScaleOverrides, key, require, spec
from preprocessing.tokenization import Frame, Vocab

_MAX_LANGUAGES: Final = 127  # language numbers are int8


class _Texts(NamedTuple):
    """X token ranges [begin, end) in text order, each in one language, and the pairs of translations among them."""

    begin_X: Ints
    end_X: Ints
    language_X: Ints
    pair_2R: Ints  # indices of both sides of each translation pair
    num_unaligned: int  # documents without sides in sources that have translations


@spec
class ParallelSentences:
    """Monolingual sequences and translation pairs (XLM 3.3, MLM, and 3.4, TLM).

    A monolingual sequence is `</s>` and a window over the sentences of one language, each followed by `</s>`. Sentences
    are in text order. With `sentence_order: shuffled` they are in a new random order each epoch. The authors also
    shuffle their files (`shuf` in get-data-wiki.sh), in which each line is a sentence, as with
    `sentence_boundaries: lines` in the corpus file.

    A translation pair is `</s> x </s> </s> y </s>`. The language changes at the second side y; with `reset_positions`,
    positions restart there. If a document has more than two sides, two of them are drawn. A pair that exceeds the
    sequence length is dropped. Each side is also part of the monolingual text of its language. The sides of a document
    are its units (`phrases: given` in the corpus file), if no unit starts inside a sentence.

    Translation pairs have a fraction `translation_ratio` of the tokens, not of the sequences. The reason is that the
    loss of a batch is one mean over all targets, whose number is proportional to the tokens. The reference alternates
    MLM and TLM updates, each with its own mean, so both have equal weight. A ratio of 0.5 corresponds to this.

    Languages are sampled with q proportional to p^alpha (3.1). Within a shard, the sequences of rarer languages and the
    pairs of rarer language pairs are repeated. Sequences or pairs are also repeated to reach the translation ratio.

    The number of a language is its index in `languages`. Its name must be part of the source of the text, e.g.
    `wiki.fr` or `fr/part-1.txt`; the first side of `europarl.en-fr.en` is en. If the source does not name each side,
    sides are numbered in order.
    """

    kind: Literal["parallel"] = "parallel"
    translation_ratio: float = key(default=0.5, doc="Fraction of tokens in translation pairs.")
    reset_positions: bool = key(default=True, doc="Whether positions restart at the second side of a translation pair.")
    sentence_order: Literal["text", "shuffled"] = key(
        default="text", doc="Sentence order within a language: text order, or shuffled within a shard each epoch."
    )
    language_sampling_alpha: float = key(
        default=0.7, doc="Exponent alpha of language sampling, q ~ p^alpha; 1: as frequent as in the text."
    )
    languages: tuple[str, ...] = key(
        default=(), doc="Language names, in the order of their numbers; []: one, or as many as a document has sides."
    )

    possible_columns: ClassVar[Columns] = EMITTED | {"languages", "positions"}
    specials: ClassVar[tuple[str, ...]] = ("sep",)
    fresh: ClassVar[bool] = True  # each epoch repeats other sequences
    ordered: ClassVar[bool] = False
    segments: ClassVar[int] = 1
    reuse_len: ClassVar[int] = 0
    label_says: ClassVar[str] = ""
    label_means: ClassVar[tuple[str, str]] = ("", "")
    both_ways: ClassVar[bool] = False
    partners: ClassVar[bool] = False
    counts_alone: ClassVar[bool] = False
    joins_shards: ClassVar[bool] = False
    kernel_gap: ClassVar[str] = "parallel"
    scale_overrides: ClassVar[ScaleOverrides] = {
        "tiny": {"languages": []},
        "small": {"languages": []},
    }  # the number of languages follows from the text

    def __post_init__(self) -> None:
        for name in ("translation_ratio", "language_sampling_alpha"):
            require(0 <= getattr(self, name) <= 1, f"packing.{name}", getattr(self, name), "a fraction from 0 to 1")
        are_unique = len(set(self.languages)) == len(self.languages) <= _MAX_LANGUAGES
        require(are_unique, "packing.languages", self.languages, f"at most {_MAX_LANGUAGES} names, each at most once")

    @property
    def produced_columns(self) -> Columns:
        return EMITTED | {"languages"} | ({"positions"} if self._has_positions else frozenset())

    @property
    def required_annotations(self) -> frozenset[str]:
        return frozenset({"translations"} if self.translation_ratio else ())

    @property
    def least(self) -> int:
        return 7 if self.translation_ratio else 2

    @property
    def frame(self) -> Frame:
        return Frame("sep A sep", "sep A sep sep B sep")

    def describe(self) -> str:
        order = "text" if self.sentence_order == "text" else "shuffled sentences"
        pairs = f"; translation pairs have {self.translation_ratio:.0%} of the tokens" if self.translation_ratio else ""
        return f"{order} in one language per sequence{pairs}"

    @property
    def _has_positions(self) -> bool:
        return self.translation_ratio > 0 and self.reset_positions

    def plan(self, shard: Shard, length: int, lookahead: int, rng: np.random.Generator) -> PackingPlan:
        """Plan sequences of at most length + lookahead tokens.

        Raises BadInput if a language is unknown, or if translation pairs are requested but the text has no sides.
        """
        if self.translation_ratio and not shard.has_units:
            raise BadInput(
                f"{shard.path}: the text has no translations, but packing.translation_ratio is "
                f"{self.translation_ratio}; use sources of kind parallel with `phrases: given` in the corpus file, "
                "or set data.packing.translation_ratio=0"
            )
        texts = self._texts(shard, rng)
        separator_at_N, text_at_N, bound_L1 = _line(texts, shard, rng if self.sentence_order == "shuffled" else None)
        start_R, stop_R = windows(bound_L1[:-1], bound_L1[1:], length - 1, lookahead)
        language_R = np.searchsorted(bound_L1, start_R, side="right") - 1
        side_2R = texts.pair_2R if self.translation_ratio else texts.pair_2R[:, :0]
        long_R = (texts.end_X - texts.begin_X)[side_2R].sum(axis=0) + 4
        fits_R = long_R <= length + lookahead
        side_R2 = side_2R[:, fits_R].T
        row_R, pair_R = self._repeat_by_ratio(
            (language_R, stop_R - start_R + 1), (texts.language_X[side_R2], long_R[fits_R]), rng
        )
        none_R = np.zeros(len(row_R), dtype=np.int64)
        rows_R2 = [
            np.stack([at_R[row_R], other_R], axis=1)
            for at_R, other_R in ((start_R, none_R), (stop_R, none_R), (language_R, none_R - 1))
        ]
        pairs_R2 = [at_X[side_R2[pair_R]] for at_X in (texts.begin_X, texts.end_X, texts.language_X)]
        start_RP, stop_RP, language_RP = (np.concatenate(both) for both in zip(rows_R2, pairs_R2, strict=True))
        return PackingPlan(
            start_RP=compact(start_RP),
            stop_RP=compact(stop_RP),
            language_RP=language_RP.astype(np.int8),
            separator_at_N=separator_at_N,
            text_at_N=text_at_N,
            counts={
                "documents": len(shard.offset_N1) - 1,
                "unaligned_documents": texts.num_unaligned,
                "rows": len(start_RP),
                "translations": len(pair_R),
                "dropped_translations": int((~fits_R).sum()),
            },
        )

    def _repeat_by_ratio(
        self, rows: tuple[Ints, Ints], pairs: tuple[Ints, Ints], rng: np.random.Generator
    ) -> tuple[Ints, Ints]:
        """Return indices of monolingual sequences and of translation pairs, with repetitions.

        The repetitions follow `language_sampling_alpha` and `translation_ratio`. `rows` and `pairs` each hold
        languages and lengths. Lengths and the ratio include special tokens.
        """
        (language_R, long_row_R), (languages_R2, long_pair_R) = rows, pairs
        row_R = (
            _sample(language_R, self.language_sampling_alpha, rng)
            if self.translation_ratio < 1
            else np.zeros(0, dtype=np.int64)
        )
        pair_R = _sample(languages_R2 @ np.array([_MAX_LANGUAGES + 1, 1]), self.language_sampling_alpha, rng)
        if len(row_R) and len(pair_R):
            times = (
                long_row_R[row_R].sum()
                / long_pair_R[pair_R].sum()
                * self.translation_ratio
                / (1 - self.translation_ratio)
            )
            row_R = _repeat(row_R, round(len(row_R) * max(1, 1 / times)), rng)
            pair_R = _repeat(pair_R, round(len(pair_R) * max(1, times)), rng)
        return row_R, pair_R

    def _texts(self, shard: Shard, rng: np.random.Generator) -> _Texts:
        """Return the documents in one language, and the sides of documents that are translations."""
        offset_N1, source_N = shard.offset_N1, shard.source_N
        num_documents = len(offset_N1) - 1
        side_at, num_sides_N = _sides(shard) if shard.has_units else (offset_N1[:0], np.zeros(num_documents, int))
        has_sides_N = num_sides_N >= 2
        num_with_S, num_S = (np.bincount(of, minlength=len(shard.sources)) for of in (source_N[has_sides_N], source_N))
        is_alone_N = (2 * num_with_S < num_S)[source_N]  # in a few documents, units may be mistaken for sides
        is_translated_N = has_sides_N & ~is_alone_N
        side_at = side_at[np.repeat(is_translated_N, num_sides_N)]
        num_sides_N = np.where(is_translated_N, num_sides_N, 0)
        num_sides_D = num_sides_N[is_translated_N]
        begin_X = np.sort(np.concatenate([side_at, offset_N1[:-1][is_alone_N]]))
        document_X = np.searchsorted(offset_N1, begin_X, side="right") - 1
        next_X = np.append(begin_X[1:], offset_N1[-1:])[: len(begin_X)]
        first_X = np.searchsorted(begin_X, offset_N1[document_X])  # index of the first text of the same document
        language_X = self.languages_of(shard, num_sides_N)[document_X, np.arange(len(begin_X)) - first_X]
        one, other = rng.random((2, len(num_sides_D)))
        one_D = (one * num_sides_D).astype(np.int64)
        other_D = (other * (num_sides_D - 1)).astype(np.int64)
        other_D += other_D >= one_D
        first_D = np.searchsorted(begin_X, offset_N1[:-1][is_translated_N])
        return _Texts(
            begin_X,
            np.minimum(next_X, offset_N1[document_X + 1]),
            language_X,
            first_D + np.sort([one_D, other_D], axis=0),
            int((~is_translated_N & ~is_alone_N).sum()),
        )

    def languages_of(self, shard: Shard, num_sides_N: Ints) -> Ints:
        """Return the language number of each side of each document, int64 [N, maximum number of sides].

        A document without sides counts as one side. Raises BadInput if a source name does not contain its language.
        """
        language_NX = np.zeros((len(num_sides_N), max(1, int(num_sides_N.max(initial=1)))), dtype=np.int64)
        kinds, kind_N = np.unique(np.stack([shard.source_N, num_sides_N]), axis=1, return_inverse=True)
        for kind, (source, num_sides) in enumerate(kinds.T.tolist()):
            numbers = self._numbers(shard.sources[source], max(1, num_sides))
            if numbers is None:
                raise BadInput(
                    f"{shard.path}: cannot infer the language of source {shard.sources[source]!r}; include one of "
                    f"{list(self.languages)} in its file or directory name, or extend data.packing.languages"
                )
            language_NX[kind_N.reshape(-1) == kind, : len(numbers)] = numbers
        return language_NX

    def _numbers(self, source: str, num_sides: int) -> list[int] | None:
        """Return the language numbers of the sides of a source, or None if they are unknown.

        >>> parallel = ParallelSentences(languages=("en", "fr", "de"))
        >>> [parallel._numbers(source, 2) for source in ("europarl.fr-en.fr", "val.en.gz")]
        [[1, 0], [0, 1]]
        >>> parallel._numbers("wiki/de/AA", 1), parallel._numbers("wiki", 1)
        ([2], None)
        """
        words = re.split(r"[^0-9A-Za-z]+", source)[::-1]
        named = [self.languages.index(word) for word in dict.fromkeys(words) if word in self.languages]
        if num_sides == 1:
            return named[:1] if named else [0] if len(self.languages) < 2 else None
        if len(named) == num_sides:
            return named
        return list(range(num_sides)) if num_sides <= (len(self.languages) or _MAX_LANGUAGES) else None

    def row(self, plan: PackingPlan, i: int, shard: Shard, vocab: Vocab, wanted: Columns = frozenset()) -> Row:
        """Return input_ids, token_type_ids, special_tokens_mask, word_starts and languages of the i-th sequence.

        The column positions is included if positions restart at the second side.
        """
        bounds = list(zip(plan.start_RP[i].tolist(), plan.stop_RP[i].tolist(), strict=True))
        language, other = plan.language_RP[i].tolist()
        if other < 0:
            special_S, parts = _window(plan, *bounds[0])
            second = len(special_S)  # no second side
        else:
            second, parts = bounds[0][1] - bounds[0][0] + 2, bounds
            special_S = np.zeros(second + bounds[1][1] - bounds[1][0] + 2, dtype=bool)
            special_S[[0, second - 1, second, -1]] = True
        row = row_of(special_S, parts, shard, vocab, wanted)
        place_S = np.arange(len(special_S), dtype=np.int32)
        row["languages"] = np.where(place_S < second, language, other).astype(np.int8)
        if self._has_positions:
            row["positions"] = np.where(place_S < second, place_S, place_S - second)
        return row


def _sides(shard: Shard) -> tuple[Ints, Ints]:
    """Return the starts of sides, and the number of sides of each document, int64 [N].

    A document in which a unit starts inside a sentence has no sides.
    """
    unit_at = np.flatnonzero(shard.unit_starts(0, int(shard.offset_N1[-1])))
    document = np.searchsorted(shard.offset_N1, unit_at, side="right") - 1
    num_documents = len(shard.offset_N1) - 1
    is_inner = ~np.isin(unit_at, shard.sentence_at_M, assume_unique=True)
    is_text_N = np.bincount(document[is_inner], minlength=num_documents) > 0
    num_units_N = np.where(is_text_N, 0, np.bincount(document, minlength=num_documents))
    return unit_at[~is_text_N[document]], num_units_N


def _line(texts: _Texts, shard: Shard, rng: np.random.Generator | None) -> tuple[Ints, Ints, Ints]:
    """Put all sentences on one line, grouped by language, each followed by a separator; with `rng` in random order.

    Return the positions of separators, the first token of each sentence, and the bounds of languages on the line.
    """
    start_M = shard.sentence_at_M
    stop_M = np.append(start_M[1:], shard.offset_N1[-1:])[: len(start_M)]
    text_M = np.searchsorted(texts.begin_X, start_M, side="right") - 1
    inside_M = (text_M >= 0) & (start_M < np.append(texts.end_X, 0)[text_M])
    start_M, stop_M, language_M = start_M[inside_M], stop_M[inside_M], texts.language_X[text_M[inside_M]]
    order = np.argsort(language_M, kind="stable")
    if rng is not None:
        order = np.lexsort((rng.random(len(language_M)), language_M))
    end_M = np.cumsum((stop_M - start_M + 1)[order])
    num_languages = int(language_M.max(initial=-1)) + 1
    bound_L1 = np.searchsorted(language_M[order], np.arange(num_languages + 1))
    return end_M - 1, start_M[order], np.concatenate([[0], end_M])[bound_L1]


def _window(plan: PackingPlan, start: int, stop: int) -> tuple[Bools, list[tuple[int, int]]]:
    """Return the separator mask and the token ranges of a separator followed by positions [start, stop) of the line."""
    first, last = np.searchsorted(plan.separator_at_N, (start, stop)).tolist()
    special_S = np.zeros(stop - start + 1, dtype=bool)
    special_S[0] = True
    special_S[plan.separator_at_N[first:last] - start + 1] = True
    ends = [*plan.separator_at_N[first:last].tolist(), stop]
    begins = [start, *(end + 1 for end in ends[:-1])]
    inside = start - (
        int(plan.separator_at_N[first - 1]) + 1 if first else 0
    )  # offset of the window in its first sentence
    parts = list[tuple[int, int]]()
    for token, begin, end in zip(plan.text_at_N[first : last + 1].tolist(), begins, ends, strict=False):
        token += inside if begin == start else 0
        if begin == end:
            continue  # the window begins or ends at a separator
        if parts and parts[-1][1] == token:
            parts[-1] = (parts[-1][0], token + end - begin)  # the next sentence of the same text extends the range
        else:
            parts.append((token, token + end - begin))
    return special_S, parts


def _sample(group_R: Ints, alpha: float, rng: np.random.Generator) -> Ints:
    """Return indices of sequences, repeated in rare groups so that q(group) is proportional to p(group)^alpha."""
    groups, of_R, count_G = np.unique(group_R, return_inverse=True, return_counts=True)
    indices: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for group in range(len(groups)):
        count = round(count_G[group] * (count_G.max() / count_G[group]) ** (1 - alpha))
        indices.append(_repeat(np.flatnonzero(of_R.reshape(-1) == group), count, rng))
    return np.concatenate(indices)


def _repeat(row_R: Ints, count: int, rng: np.random.Generator) -> Ints:
    """Return `row_R` repeated to `count` elements, a count of at least len(row_R); the last repetition is random."""
    whole, rest = divmod(count, max(1, len(row_R)))
    return np.concatenate([np.tile(row_R, whole), rng.permutation(row_R)[:rest]])
