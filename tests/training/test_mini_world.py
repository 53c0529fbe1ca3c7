"""The test data itself: the known properties of the artificial language must not change."""

import numpy as np
import pytest

from tests.mini_world import AT, VOCAB_SIZE, World, bigram_cross_entropy, unigram_entropy, world


def test_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    assert np.array_equal(world(3, 20).ids_T, world(3, 20).ids_T)
    assert not np.array_equal(world(3, 20).ids_T[:100], world(4, 20).ids_T[:100])


def test_size_is_that_of_the_reference(train: World) -> None:
    assert (VOCAB_SIZE, len(train.ids_T), len(train.num_tokens_N)) == (467, 378_917, 4000)
    assert train.num_tokens_N.sum() == len(train.ids_T)


def test_unigram_entropy_is_5_077_nats(train: World) -> None:
    assert unigram_entropy(train.ids_T) == pytest.approx(5.0770, abs=1e-4)  # the world in the reference code: 5.073


def test_bigram_cross_entropy_is_3_134_nats(train: World, held_out: World) -> None:
    found = bigram_cross_entropy(train.ids_T, held_out.ids_T)
    assert found == pytest.approx(3.1345, abs=1e-4)  # the world in the reference code: 3.117


def test_bigrams_of_a_cycle_are_certain() -> None:
    cycle_T = np.tile(np.arange(VOCAB_SIZE), 200)
    assert unigram_entropy(cycle_T) == pytest.approx(np.log(VOCAB_SIZE))
    assert bigram_cross_entropy(cycle_T, cycle_T) < 0.01


def test_determiner_verb_and_particle_agree_in_number(train: World) -> None:
    start_M = np.flatnonzero(train.sentence_starts_T)
    end_M = np.append(start_M[1:], len(train.ids_T)) - 1
    number_M = train.ids_T[start_M] - AT["determiner"]
    assert set(number_M.tolist()) == {0, 1}
    assert np.array_equal(train.ids_T[end_M] - AT["particle"], number_M)
    assert np.array_equal((train.ids_T[start_M + 2] - AT["verb"]) % 24 // 12, number_M)


def test_second_token_of_a_collocation_follows_its_first_and_starts_no_word(train: World) -> None:
    second = np.flatnonzero(~train.word_starts_T)
    assert np.array_equal(train.ids_T[second] - AT["second"], train.ids_T[second - 1] - AT["first"])
    assert len(second) / train.sentence_starts_T.sum() == pytest.approx(0.9, abs=0.01)


def test_markers_of_a_document_never_return_to_an_earlier_stage(train: World) -> None:
    document_T = np.repeat(np.arange(4000), train.num_tokens_N)
    is_marker_T = (train.ids_T >= AT["marker"]) & (train.ids_T < AT["name"])
    stage, document = (train.ids_T[is_marker_T] - AT["marker"]) // 3, document_T[is_marker_T]
    assert (np.diff(stage)[np.diff(document) == 0] >= 0).all()


def test_a_document_has_one_topic_and_at_most_three_names(train: World) -> None:
    document_T = np.repeat(np.arange(4000), train.num_tokens_N)
    nouns = (train.ids_T >= AT["noun"]) & (train.ids_T < AT["verb"])
    names = (train.ids_T >= AT["name"]) & (train.ids_T < AT["noun"])
    for kind, ids, most in ((nouns, (train.ids_T - AT["noun"]) // 24, 1), (names, train.ids_T, 3)):
        pairs = np.unique(np.stack([document_T[kind], ids[kind]]), axis=1)
        assert np.bincount(pairs[0]).max() == most
