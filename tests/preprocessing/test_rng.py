import numpy as np
import pytest

from preprocessing.rng import key


def philox4x64(counter: list[int], bits: int) -> list[int]:
    """Return the four words of one block: ten rounds as in Salmon et al. 2011, in plain integers."""
    word, low = (1 << 64) - 1, [bits & ((1 << 64) - 1), bits >> 64]
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [
            (second >> 64) ^ counter[1] ^ low[0],
            second & word,
            (first >> 64) ^ counter[3] ^ low[1],
            first & word,
        ]
        low = [(low[0] + 0x9E3779B97F4A7C15) & word, (low[1] + 0xBB67AE8584CAA73B) & word]
    return counter


def test_the_oracle_gives_the_published_result():  # kat_vectors in the repository of Random123
    assert philox4x64([0] * 4, 0) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


def test_an_address_is_two_words_of_the_philox_counter():
    masking = key(7, "masking")
    found = masking.at(epoch=5, sample=11).bit_generator.random_raw(8).tolist()
    assert found == philox4x64([1, 0, 11, 5], masking.bits) + philox4x64([2, 0, 11, 5], masking.bits)


def test_draws_of_an_address_are_independent_of_other_addresses():
    masking = key(0, "masking")
    expected = masking.at(3, 4).random(5)
    masking.at(3, 5).random(1000)
    np.testing.assert_array_equal(masking.at(3, 4).random(5), expected)


def test_neighboring_addresses_share_no_draw():
    masking = key(0, "masking")
    drawn = [masking.at(epoch, sample).integers(2**63, size=1000) for epoch in range(5) for sample in range(5)]
    assert len(np.unique(drawn)) == 25_000


def test_each_seed_and_purpose_has_its_own_key():
    purposes = ("order", "segment", "masking", "weights", "dropout", "task")
    assert len({key(seed, purpose) for seed in range(100) for purpose in purposes}) == 600


def test_keys_do_not_change_between_releases():
    assert key(0, "order").bits == 269030779132393511268617936674762503185
    assert key(1, "masking").bits == 220310015728616363488421884123278451003


def test_an_unknown_purpose_is_an_error():
    with pytest.raises(KeyError):
        key(0, "luck")
