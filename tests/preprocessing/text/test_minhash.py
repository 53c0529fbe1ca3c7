"""Near-duplicates share bands with the theoretical probability; clusters are independent of the edge order."""

import random

import numpy as np
import pytest

from preprocessing.text import components, signature
from preprocessing.text.minhash import band_hashes, jaccard
from preprocessing.text.ngrams import Hashes, hash_words


def sets_of_similarity(similarity: float, size: int, rng: np.random.Generator) -> tuple[Hashes, Hashes]:
    """Return two sets of random hashes with intersection / union = similarity."""
    num_shared = round(similarity * size)
    union = rng.integers(0, 1 << 63, size, dtype=np.uint64)
    shared, rest = union[:num_shared], union[num_shared:]
    return np.concatenate((shared, rest[: len(rest) // 2])), np.concatenate((shared, rest[len(rest) // 2 :]))


@pytest.mark.parametrize("similarity", [0.1, 0.5, 0.8, 0.95])
def test_the_fraction_of_equal_signature_values_is_the_jaccard_similarity(similarity: float) -> None:
    rng = np.random.default_rng(6)
    num_pairs, num_permutations = 200, 112
    agreement = [
        float((signature(a, num_permutations) == signature(b, num_permutations)).mean())
        for a, b in (sets_of_similarity(similarity, 200, rng) for _ in range(num_pairs))
    ]
    sigma = (similarity * (1 - similarity) / (num_pairs * num_permutations)) ** 0.5
    assert abs(np.mean(agreement) - similarity) < 4 * sigma
    # the permutations are independent of each other
    expected_variance = similarity * (1 - similarity) / num_permutations
    assert 0.7 < np.var(agreement) / expected_variance < 1.4


@pytest.mark.parametrize("size", [3, 40, 3000])
def test_each_hash_is_the_minimum_equally_often(size: int) -> None:
    """Chi-square over permutations: how often each n-gram has the minimum, at 4 sigma of the normal approximation."""
    rng = np.random.default_rng(size)
    counts = np.zeros(size)
    for _ in range(20):
        member_N = rng.integers(0, 1 << 63, size, dtype=np.uint64)
        least_P = signature(member_N, 512)
        each_NP = np.stack([signature(member_N[i : i + 1], 512) for i in range(min(size, 40))])
        counts[: len(each_NP)] += (each_NP == least_P).sum(axis=1)
    num_seen, expected = min(size, 40), 20 * 512 / size
    chi_square = ((counts[:num_seen] - expected) ** 2 / expected).sum()
    assert chi_square < num_seen + 4 * (2 * num_seen) ** 0.5


@pytest.mark.parametrize("num_changed", [2, 4, 6, 9, 14])
def test_texts_share_a_band_with_the_probability_of_the_banding_formula(num_changed: int) -> None:
    """In 400 pairs of changed texts, the number of hits is near the sum of all 1 - (1 - s**rows)**bands."""
    draw = random.Random(num_changed)
    bands, rows = 14, 8
    num_met, expected, variance = 0, 0.0, 0.0
    for _ in range(400):
        words = [f"w{draw.randrange(10**6)}" for _ in range(200)]
        changed = list(words)
        for at in draw.sample(range(200), num_changed):
            changed[at] = f"new{draw.randrange(10**6)}"
        a, b = " ".join(words), " ".join(changed)
        probability = 1 - (1 - jaccard(a, b, 5) ** rows) ** bands
        num_met += bool((band_hashes(a, 5, bands, rows) == band_hashes(b, 5, bands, rows)).any())
        expected += probability
        variance += probability * (1 - probability)
    assert abs(num_met - expected) < 4 * variance**0.5 + 1
    assert num_met > 0


def test_permutations_are_bijections_unlike_in_datatrove() -> None:
    """In datatrove (not here) a * x + b wraps at 2**64 before the modulus 2**61 - 1, so two x may collide."""
    some_N = np.arange(1 << 16, dtype=np.uint64)
    image_NP = np.stack([signature(some_N[i : i + 1], 4) for i in range(0, len(some_N), 16)])
    assert all(len(np.unique(image_N)) == len(image_N) for image_N in image_NP.T)


def test_bands_of_one_text_differ() -> None:
    one_word = band_hashes("word", 5, 14, 8)
    assert len(set(one_word.tolist())) == 14
    assert len(set(band_hashes("word", 5, 8, 1).tolist())) == 8


def test_equal_words_share_every_band_regardless_of_punctuation() -> None:
    a = band_hashes("One, two: THREE four -- five six.", 5, 14, 8)
    assert a.tolist() == band_hashes("one two three four five six", 5, 14, 8).tolist()


def test_a_text_shorter_than_an_ngram_is_one_ngram() -> None:
    assert band_hashes("One two.", 5, 14, 8).tolist() == band_hashes("one TWO", 5, 14, 8).tolist()
    assert band_hashes("One two.", 5, 14, 8).tolist() != band_hashes("two one", 5, 14, 8).tolist()


def test_a_text_without_words_has_no_bands() -> None:
    assert band_hashes("... !", 5, 14, 8).shape == (0,)


def test_chinese_texts_are_compared_by_characters() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    changed = text[:100] + "\u9fa0" + text[101:]
    assert jaccard(text, changed, 5) == pytest.approx(291 / 301)
    assert (band_hashes(text, 5, 14, 8) == band_hashes(changed, 5, 14, 8)).any()


def test_long_texts_hashed_in_blocks_have_the_same_signature() -> None:
    member_N = hash_words(" ".join(map(str, range(1000))))
    parts = [signature(member_N[i : i + 7], 16) for i in range(0, 1000, 7)]
    assert signature(member_N, 16).tolist() == np.min(parts, axis=0).tolist()


def test_signatures_do_not_change_between_versions() -> None:
    """Bands may be stored and compared later, so a new library or numpy version must not change them."""
    assert [f"{band:016x}" for band in band_hashes("the same for ever", 2, 2, 4).tolist()] == [
        "7e914dd309542b5e",
        "d8564ddf29debd24",
    ]


@pytest.mark.parametrize(
    ("a", "b", "ngram", "expected"),
    [
        ("a b c d", "a b c d", 2, 1.0),
        ("a b c d", "d c b a", 2, 0.0),
        ("a b c", "b c d", 2, 1 / 3),
        ("a b a b a b", "a b", 2, 1 / 2),
        ("a", "a", 5, 1.0),
        ("a", "", 5, 0.0),
        ("", "", 5, 0.0),
    ],
)
def test_jaccard_counts_distinct_ngrams(a: str, b: str, ngram: int, expected: float) -> None:
    assert jaccard(a, b, ngram) == pytest.approx(expected)


def reference_components(edges: list[tuple[int, int]], num_nodes: int) -> list[int]:
    """Return the smallest node reachable from each node."""
    smallest = list(range(num_nodes))
    for _ in range(num_nodes):
        for a, b in edges:
            smallest[a] = smallest[b] = min(smallest[a], smallest[b])
    return smallest


def test_components_equal_a_search_for_any_edge_order() -> None:
    draw = random.Random(8)
    for _ in range(100):
        num_nodes = draw.randint(1, 30)
        edges = [(draw.randrange(num_nodes), draw.randrange(num_nodes)) for _ in range(draw.randint(0, 40))]
        expected = reference_components(edges, num_nodes)
        for _ in range(2):
            draw.shuffle(edges)
            found = components(np.array(edges, np.int64).reshape(-1, 2), num_nodes)
            assert found.tolist() == expected


@pytest.mark.parametrize("order", ["along", "against", "mixed"])
def test_a_chain_of_100_000_nodes_is_one_component(order: str) -> None:
    node_N = np.arange(100_000)
    node_N = {"along": node_N, "against": node_N[::-1], "mixed": np.random.default_rng(9).permutation(node_N)}[order]
    assert not components(np.stack([node_N[:-1], node_N[1:]], axis=1), len(node_N)).any()
