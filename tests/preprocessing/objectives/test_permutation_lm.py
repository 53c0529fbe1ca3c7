"""XLNet attention masks, against a literal form of the reference's `_local_perm` (zihangdai/xlnet, data_utils.py)."""

import numpy as np
import pytest
from scipy import stats

from preprocessing.masking import NoMasking, TokenMasking
from preprocessing.objectives import PermutationLM
from preprocessing.rng import key
from preprocessing.schema import IGNORE
from tests.preprocessing.toy import ToyVocab, row

MASKING, VOCAB = key(0, "masking"), ToyVocab()


def made(num_tokens: int, block: int, specials: list[int], sample: int = 0, rate: float = 0.3) -> dict[str, np.ndarray]:
    before = row(num_tokens, specials)
    before["hits"] = TokenMasking(rate=rate)(before, MASKING.at(0, sample))
    return PermutationLM(perm_size=block)(before, VOCAB, MASKING.at(1, sample))


def indices(after: dict[str, np.ndarray], block: int) -> np.ndarray:
    """Return the permutation of the ranks; tokens without their own rank get the remaining indices of a block."""
    index_S = np.full(len(after["rank"]), -1)
    is_ordered_S = (after["hits"] > 0) | after["special_tokens_mask"]
    for number, start in enumerate(range(0, len(index_S), block)):
        at = np.arange(start, min(start + block, len(index_S)))
        ordered = at[is_ordered_S[at]]
        index_S[ordered] = after["rank"][ordered] - number * (block + 1) - 1
        index_S[at[~is_ordered_S[at]]] = sorted(set(range(len(at))) - set(index_S[ordered].tolist()))
    return index_S


def reference_perm_mask(after: dict[str, np.ndarray], block: int) -> np.ndarray:
    """Return perm_mask [S, S] of a sequence of blocks: True if the query (first) may not attend to the key (second)."""
    is_target_S, special_S = after["hits"] > 0, after["special_tokens_mask"]
    hidden_SS = np.zeros((len(special_S), len(special_S)), dtype=bool)
    index_S = indices(after, block)
    is_ordered_S = is_target_S | special_S
    rev_index_S = np.where(is_ordered_S, index_S, -1)
    self_rev_index_S = np.where(is_target_S, rev_index_S, rev_index_S + 1)
    for i in range(len(special_S)):
        for j in range(len(special_S)):
            if i // block == j // block:
                hidden_SS[i, j] = self_rev_index_S[i] <= rev_index_S[j] and is_ordered_S[j]
            else:
                hidden_SS[i, j] = i // block < j // block
    return hidden_SS


@pytest.mark.parametrize("num_tokens", [32, 29, 16, 5])
def test_rank_and_reach_equal_the_reference_mask(num_tokens: int) -> None:
    for sample in range(20):
        after = made(num_tokens, 16, specials=[4, num_tokens - 2, num_tokens - 1], sample=sample)
        hidden_SS = reference_perm_mask(after, 16)
        sees_SS = after["rank"][None, :] <= after["reach"][:, None]
        itself_SS = np.eye(num_tokens, dtype=bool)
        # content stream: non_tgt_mask of the reference
        np.testing.assert_array_equal(sees_SS | itself_SS, ~hidden_SS | itself_SS)
        is_target_S = after["hits"] > 0
        np.testing.assert_array_equal(sees_SS[is_target_S], ~hidden_SS[is_target_S])  # queries


def test_indices_are_a_permutation_of_each_block() -> None:
    for sample in range(20):
        index_S = indices(made(40, 16, [3, 20, 39], sample), 16)
        assert [sorted(part.tolist()) for part in np.split(index_S, [16, 32])] == [[*range(16)]] * 2 + [[*range(8)]]


def test_no_query_attends_to_its_own_token_or_a_later_block() -> None:
    after = made(64, 32, [31, 63])
    sees_SS = after["rank"][None, :] <= after["reach"][:, None]
    assert not sees_SS.diagonal()[after["hits"] > 0].any()
    assert not sees_SS[:32, 32:].any()
    assert sees_SS[32:, :32].all()


def test_other_tokens_attend_to_no_targets_and_all_tokens_attend_to_them() -> None:
    after = made(32, 32, [30, 31])
    plain_S = (after["hits"] == 0) & ~after["special_tokens_mask"]
    sees_SS = after["rank"][None, :] <= after["reach"][:, None]
    assert sees_SS[:, plain_S].all()
    assert not sees_SS[np.ix_(plain_S, ~plain_S)].any()


def test_a_target_attends_only_to_targets_earlier_in_the_order() -> None:
    for sample in range(20):
        after = made(64, 64, [62, 63], sample)
        at_M = np.flatnonzero(after["hits"])
        in_order = at_M[np.argsort(after["rank"][at_M])]
        sees_MM = after["rank"][None, in_order] <= after["reach"][in_order, None]
        np.testing.assert_array_equal(sees_MM, np.tri(len(at_M), k=-1, dtype=bool))


def test_all_orders_of_the_targets_are_equally_likely() -> None:
    orders: dict[tuple[int, ...], int] = {}
    for sample in range(1200):
        after = made(3, 3, [], sample, rate=1.0)
        order = tuple(after["rank"].tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 6
    assert stats.chisquare(list(orders.values())).pvalue > 0.001


def test_only_targets_have_labels() -> None:
    after = made(64, 32, [31, 62, 63])
    np.testing.assert_array_equal(after["labels"], np.where(after["hits"] > 0, after["input_ids"], IGNORE))
    assert (after["labels"][after["special_tokens_mask"]] == IGNORE).all()
    assert {name: str(after[name].dtype) for name in ("labels", "rank", "reach")} == dict.fromkeys(
        ("labels", "rank", "reach"), "int32"
    )


def test_each_block_has_its_own_permutation_unlike_in_xlnet() -> None:
    different = 0
    for sample in range(20):
        after = made(32, 16, [], sample, rate=1.0)
        index_S = indices(after, 16)
        different += (index_S[:16] != index_S[16:]).any()
    assert different == 20


def test_raw_length_is_the_model_length_and_perm_size_is_positive() -> None:
    assert PermutationLM().raw_length(512, NoMasking()) == 512
    with pytest.raises(ValueError, match=r"invalid objective.perm_size: got 0, expected a positive number of tokens"):
        PermutationLM(perm_size=0)
