"""The call of the kernel of each objective."""

from collections.abc import Callable
from math import ceil, exp

import numpy as np

from preprocessing.compiled import denoising, objectives
from preprocessing.compiled.packing import count_positions
from preprocessing.compiled.rows import CompiledRows, make_batch
from preprocessing.objectives import (
    CausalLM,
    Denoising,
    MaskedLM,
    Objective,
    PermutationLM,
    SpanCorruption,
    ordinal_above,
)
from preprocessing.schema import Batch, Ints
from preprocessing.tokenization import Vocab

Apply = Callable[[CompiledRows, Ints, Ints], Batch]
"""Makes a batch of packed sequences, their `hits` and their generators."""

_NO_TOKENS = np.zeros(0, np.uint16)
_NO_BOUNDS = np.zeros(0, np.int64)


def make_objective(objective: Objective, vocab: Vocab, length: int, stream: Callable[[], Ints]) -> Apply:
    """The call for sequences of at most `length` tokens; `stream` returns the tokens of MaskedLM's source `corpus`."""
    match objective:
        case MaskedLM():
            how = _replacement(objective, vocab, stream)

            def replace(rows: CompiledRows, hit_T: Ints, states: Ints) -> Batch:
                found = objectives.replace_tokens(rows.first_B1, rows.ids_T, rows.special_T, hit_T, states, how)
                return make_batch(rows, rows.first_B1, rows.ids_T, rows.types_T, *found)

            return replace
        case CausalLM():
            return _shift
        case PermutationLM():
            size = objective.perm_size

            def permute(rows: CompiledRows, hit_T: Ints, states: Ints) -> Batch:
                at_M, target_M, rank_T, reach_T = objectives.permute(
                    rows.first_B1, rows.ids_T, rows.special_T, hit_T, states, size
                )
                batch = make_batch(rows, rows.first_B1, rows.ids_T, rows.types_T, at_M, target_M)
                return batch | {"rank": rank_T, "reach": reach_T}

            return permute
        case SpanCorruption():
            collapses, predicts_all = objective.collapse_spans, objective.targets == "all"

            def corrupt(rows: CompiledRows, hit_T: Ints, states: Ints) -> Batch:
                source_B1, source_U, target_B1, target_T, most = objectives.corrupt_spans(
                    rows.first_B1, rows.ids_T, hit_T, vocab.size, vocab.sep or 0, collapses, predicts_all
                )
                if most > vocab.sentinels:
                    objective.sentinels(most, vocab)  # raises BadInput
                return _two_sides(rows, source_B1, source_U, target_B1, target_T, vocab.pad or 0)

            return corrupt
        case Denoising():
            noise = _noise(objective, vocab, length)

            def denoise(rows: CompiledRows, hit_T: Ints, states: Ints) -> Batch:
                source_B1, source_U = denoising.denoise(
                    rows.first_B1, rows.ids_T, rows.special_T, rows.word_starts_T, rows.sentence_starts_T, states, noise
                )
                return _two_sides(rows, source_B1, source_U, rows.first_B1, rows.ids_T, vocab.sep or 0)

            return denoise
        case _:
            raise ValueError(f"objective {objective.kind} has no kernel")


def _shift(rows: CompiledRows, hit_T: Ints, states: Ints) -> Batch:
    first_B1, ids_T, types_T, target_T = objectives.shift(rows.first_B1, rows.ids_T, rows.types_T)
    return make_batch(rows, first_B1, ids_T, types_T, np.arange(len(ids_T)), target_T)


def _two_sides(
    rows: CompiledRows, source_B1: Ints, source_U: Ints, target_B1: Ints, target_T: Ints, start: int
) -> Batch:
    """The batch of seq2seq.two_sides, in which each token of the decoder has a target."""
    plain = rows._replace(position_T=None)
    input_T = objectives.shift_right(target_B1, target_T, start)
    batch = make_batch(plain, target_B1, input_T, np.zeros_like(input_T), np.arange(len(input_T)), target_T)
    return batch | {
        "source_input_ids": source_U,
        "source_positions": count_positions(source_B1),
        "source_lengths": np.diff(source_B1).astype(np.int32),
    }


def _replacement(objective: MaskedLM, vocab: Vocab, stream: Callable[[], Ints]) -> objectives.Replacement:
    source = objective.random_token_source
    is_special_left_out = source == "non_special"
    stream_T = np.ascontiguousarray(stream()).view() if source == "corpus" else _NO_TOKENS
    stream_T.flags.writeable = False  # as in a shard, so there is one type to compile for
    return objectives.Replacement(
        mask=vocab.mask or 0,
        mask_prob=objective.mask_replace_prob,
        mask_or_random_prob=objective.mask_replace_prob + objective.random_replace_prob,
        by_span=objective.replace_unit == "span",
        from_row=source == "row",
        stream_T=stream_T,
        num_ids=vocab.size - len(vocab.special_ids) * is_special_left_out,
        ordinal_above=ordinal_above(vocab.special_ids) if is_special_left_out else _NO_BOUNDS,
    )


def _noise(objective: Denoising, vocab: Vocab, length: int) -> denoising.Noise:
    def round_up(rate: float) -> Ints:
        return np.array([ceil(rate * number - 1e-9) for number in range(length + 1)], np.int64)

    kinds, mean = objective.noise_types, objective.poisson_lambda
    return denoising.Noise(
        permutes="sentence_permutation" in kinds,
        masks="token_masking" in kinds,
        deletes="token_deletion" in kinds,
        infills="text_infilling" in kinds,
        rotates="document_rotation" in kinds,
        mask=vocab.mask or 0,
        random_prob=objective.random_replace_prob,
        num_ids=vocab.size - len(vocab.special_ids),
        ordinal_above=ordinal_above(vocab.special_ids),
        num_masked_S1=round_up(objective.mask_ratio),
        num_moved_S1=round_up(objective.permute_sentence_ratio),
        moves_all=objective.permute_sentence_ratio >= 1,
        num_lengths_S1=np.array([ceil(1.2 * number / mean) + 8 for number in range(length + 1)], np.int64),
        threshold=exp(-mean),
    )
