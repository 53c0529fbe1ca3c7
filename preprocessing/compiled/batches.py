"""Batches by kernels: finds the sequences, makes the parameters of the kernels from a recipe, and calls them."""

from collections.abc import Callable

import numpy as np

from preprocessing import rng
from preprocessing.compiled import packing
from preprocessing.compiled.masking_calls import make_mask
from preprocessing.compiled.objective_calls import make_objective
from preprocessing.compiled.packing_calls import make_pack
from preprocessing.compiled.philox import make_states
from preprocessing.compiled.tables import Places, Plans, RowOptions, make_lines, make_plans
from preprocessing.jit import is_compiled
from preprocessing.row_plans import EpochPlans, RowPlans
from preprocessing.sampling import ExampleSpec
from preprocessing.schema import Batch, Ints
from preprocessing.tokenization import Vocab


class KernelBatches:
    """Makes the batch of any sequences of a dataset (rows.py) with kernels, if coverage.py says that there are some.

    `stream` returns the tokens from which MaskedLM may draw random ones. It is called at most once.
    """

    def __init__(
        self, plans: RowPlans, sampling: ExampleSpec, vocab: Vocab, length: int, stream: Callable[[], Ints]
    ) -> None:
        most = sampling.objective.raw_length(length, sampling.masking)
        self._plans, self._sampling = plans, sampling
        self._all_lines = [line for lines in plans.lines for line in lines]
        self._opened = frozenset[int]() if plans.store.is_remote else frozenset(range(len(self._all_lines)))
        self._lines, self._kept = make_lines(self._all_lines, self._opened)
        self._first_lines = np.cumsum([0, *map(len, plans.lines)])
        self._plan_tables: list[tuple[EpochPlans, Plans, list[np.ndarray]]] = []
        bits = rng.key(sampling.seed, "masking").bits
        self._key = np.array([bits & (2**64 - 1), bits >> 64], np.uint64)
        needed = sampling.masking.required_columns | sampling.objective.required_columns
        self._options = RowOptions(vocab.cls or 0, vocab.sep or 0, "word_starts" in needed, "sentence_starts" in needed)
        self._pack = make_pack(sampling.packing)
        self._mask = make_mask(sampling.masking, most)
        self._apply = make_objective(sampling.objective, vocab, most, stream)

    def will_compile(self) -> bool:
        """Whether the first batch takes seconds, because the cache has no machine code of its kernels."""
        return not is_compiled(packing.locate)

    def make(self, address_B2: Ints) -> Batch:
        """The unpadded batch of the sequences at these addresses (epoch, sample), int64 [B, 2]."""
        epoch_B, sample_B = np.ascontiguousarray(address_B2.T)
        number_B, group_B = np.divmod(sample_B, len(self._plans.groups))
        found = self._find(group_B, epoch_B, number_B)
        self._open_lines(found.line_B)
        turn_B = epoch_B % self._sampling.static_masks if self._sampling.static_masks else epoch_B
        rows = self._pack(self._lines, found, self._options)
        states = make_states(self._key, turn_B, sample_B)
        return self._apply(rows, self._mask(rows, states), states)

    def _open_lines(self, line_B: Ints) -> None:
        """Add the addresses of these lines to the table, if their shards are in a store and were not opened yet."""
        if len(self._opened) < len(self._all_lines) and not self._opened >= (lines := set(line_B.tolist())):
            self._opened |= lines
            self._lines, self._kept = make_lines(self._all_lines, self._opened)

    def _find(self, group_B: Ints, epoch_B: Ints, number_B: Ints) -> Places:
        """The places of sequences that may belong to several groups and epochs."""
        if (group_B == group_B[0]).all() and (epoch_B == epoch_B[0]).all():
            return self._find_in_epoch(int(group_B[0]), int(epoch_B[0]), number_B)
        whole: Places | None = None
        for group, epoch in sorted(set(zip(group_B.tolist(), epoch_B.tolist(), strict=True))):
            at_N = np.flatnonzero((group_B == group) & (epoch_B == epoch))
            part = self._find_in_epoch(group, epoch, number_B[at_N])
            if whole is None:
                whole = Places(*(np.empty((len(number_B), *column.shape[1:]), column.dtype) for column in part))
            for column, of_part in zip(whole, part, strict=True):
                column[at_N] = of_part
        assert whole is not None
        return whole

    def _find_in_epoch(self, group: int, epoch: int, number_N: Ints) -> Places:
        epoch_plans = self._plans.epoch(group, epoch)
        plans = self._table_of(epoch_plans)
        plan_N, start_NP, stop_NP, label_N = packing.locate(number_N, plans, epoch_plans.plans[0].start_RP.shape[1])
        line_N = self._first_lines[group] + plan_N % len(self._plans.lines[group])
        return Places(
            line_B=line_N,
            separator_B=plans.separator_K[plan_N],
            num_separators_B=plans.num_separators_K[plan_N],
            piece_B=plans.piece_K[plan_N],
            piece_width_B=plans.piece_width_K[plan_N],
            num_pieces_B=plans.num_pieces_K[plan_N],
            start_BP=start_NP,
            stop_BP=stop_NP,
            label_B=label_N,
        )

    def _table_of(self, epoch_plans: EpochPlans) -> Plans:
        """The table of the plans of an epoch; those of the last epochs are cached, as the plans are."""
        for cached, plans, _ in self._plan_tables:
            if cached is epoch_plans:
                return plans
        plans, kept = make_plans(epoch_plans.plans, epoch_plans.end_K)
        self._plan_tables = [*self._plan_tables[1 - 2 * len(self._plans.groups) :], (epoch_plans, plans, kept)]
        return plans
