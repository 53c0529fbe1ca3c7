"""The parts without a model: trees, prompts, normalization."""

import subprocess
import sys

import numpy as np
import pytest

from training.evaluation.likelihood import (
    NORMALISATIONS,
    FewShotExample,
    LogP,
    as_array,
    normalize,
    prompt,
    separate_trees,
    shots,
    trees,
)


def test_trees_contain_every_sequence_and_share_each_prefix() -> None:
    rng = np.random.default_rng(0)
    sequences = [[1, *rng.integers(0, 3, rng.integers(0, 40)).tolist()] for _ in range(300)]
    found = trees(sequences)
    paths = {number: (tree, path) for tree in found for number, path in tree.paths.items()}
    assert sorted(paths) == list(range(300))
    for number, (tree, path) in paths.items():
        assert [tree.ids[node] for node in path] == sequences[number]
        assert [tree.places[node] for node in path] == list(range(len(path)))
    assert sum(len(tree.ids) for tree in found) < 0.9 * sum(map(len, sequences))
    assert max(len(tree.ids) for tree in found) <= 256


def test_a_token_attends_only_to_its_own_path() -> None:
    (tree,) = trees([[5, 6, 7, 8], [5, 6, 9]])
    _, places_BS, seen_BSS = as_array([tree])
    for number, sequence in enumerate([[5, 6, 7, 8], [5, 6, 9]]):
        for depth, node in enumerate(tree.paths[number]):
            seen = np.flatnonzero(seen_BSS[0, node]).tolist()
            assert sorted(seen) == sorted(tree.paths[number][: depth + 1])
            assert [tree.ids[each] for each in tree.paths[number][: depth + 1]] == sequence[: depth + 1]
            assert places_BS[0, node] == depth


def test_padding_attends_only_to_itself() -> None:
    ids_BS, _, seen_BSS = as_array(separate_trees([[5, 6, 7], [8]]))
    assert ids_BS.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert seen_BSS[1].tolist() == np.eye(3, dtype=bool).tolist()


@pytest.mark.parametrize(
    ("how", "wanted"), [("sum", -6.0), ("token", -2.0), ("character", -1.2), ("byte", -1.0), ("unconditional", 2.0)]
)
def test_log_probabilities_are_normalized(how: str, wanted: float) -> None:
    given = LogP(-6.0, 3, greedy=False)
    text = " na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve"
    found = normalize(given, how, text, LogP(-8.0, 3, greedy=False))  # type: ignore[arg-type]
    assert found == pytest.approx(wanted)
    assert set(NORMALISATIONS) == {"sum", "token", "character", "byte", "unconditional"}


POOL = [FewShotExample(f"{number}+1=", f" {number + 1}") for number in range(20)]


def test_examples_depend_only_on_seed_and_question() -> None:
    first = shots(POOL, 3, 0, "30+1=")
    assert first == shots(POOL, 3, 0, "30+1=")
    assert first != shots(POOL, 3, 1, "30+1=")
    assert first != shots(POOL, 3, 0, "31+1=")
    assert len(set(first)) == 3


def test_a_question_is_never_one_of_its_own_examples() -> None:
    for example in POOL:
        assert example not in shots(POOL, 19, 0, example.question)


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="too few examples: got 19 that differ from the question, expected 20"):
        shots(POOL, 20, 0, POOL[0].question)


def test_all_examples_are_drawn_equally_often() -> None:
    counts = dict.fromkeys(POOL, 0)
    for number in range(2_000):
        for example in shots(POOL, 1, 0, f"question {number}"):
            counts[example] += 1
    expected = 2_000 / len(POOL)
    # chi-square, 19 degrees of freedom, p .001
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 43.8


def test_zero_examples_give_an_empty_prompt() -> None:
    assert prompt(shots(POOL, 0, 0, "x")) == ""


def test_likelihood_modules_do_not_import_torch() -> None:
    modules = "training.evaluation.likelihood, training.evaluation.tasks.loglikelihood_choice"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
