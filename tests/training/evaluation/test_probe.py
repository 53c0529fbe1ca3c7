"""Probes of a frozen model: their scores on artificial features, and the sequences that they use."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput, DataError
from preprocessing.manifest import Manifest
from preprocessing.objectives import MaskedLM
from preprocessing.packing import Contiguous
from preprocessing.schema import IGNORE
from tests.training.corpora import mini_corpus, mini_run, resampled
from training.evaluation import probe
from training.formats import save_weights
from training.losses import MaskedTokens, SentencePair
from training.model import Model
from training.model_spec import ModelSpec
from training.run import Run


def net(run: Run) -> Model:
    return Model(run.model, run.losses, run.vocab_size, seed=0).eval()


def planted(num: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """Random features, and a binary label that shifts all of them by `shift`."""
    rng = np.random.default_rng(0)
    label_N = rng.integers(2, size=num)
    return rng.normal(size=(num, 8)) + shift * label_N[:, None], label_N


def test_linearly_separable_classes_are_detected() -> None:
    assert probe.fit_linear(*planted(1_200, shift=3.0), fitted=800) > 0.99


def test_random_labels_give_chance_accuracy() -> None:
    assert abs(probe.fit_linear(*planted(3_000, shift=0.0), fitted=1_000) - 0.5) < 0.04


def test_scored_examples_do_not_train_the_classifier() -> None:
    feature_ND, label_N = planted(400, shift=0.5)
    turned_N = np.concatenate([label_N[:200], 1 - label_N[200:]])
    assert probe.fit_linear(feature_ND, label_N, 200) == pytest.approx(1 - probe.fit_linear(feature_ND, turned_N, 200))


def test_the_sequences_do_not_depend_on_the_seed_of_the_run(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path)
    found = probe.pairs(net(run), probe.load_held_out(run))
    assert found == probe.pairs(net(run), probe.load_held_out(resampled(run, seed=7)))
    rows = probe.load_held_out(run)
    assert rows.store.split == "validation"  # this corpus has no test split
    assert (found.fitted, found.fitted + found.scored) == (rows.count(0) * 2 // 3, rows.count(0))


def test_pairs_are_probed_without_masks(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path)
    plain = resampled(run, objective=MaskedLM(mask_replace_prob=0.0, random_replace_prob=0.0))
    hidden, whole = ([probe.load_held_out(one).row(0, i) for i in range(5)] for one in (run, plain))
    assert any((one["input_ids"] != other["input_ids"]).any() for one, other in zip(hidden, whole, strict=True))
    np.testing.assert_array_equal(probe.summaries(net(run), hidden), probe.summaries(net(run), whole))


def test_masked_tokens_and_correct_predictions_are_counted(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path)
    model, rows = net(run), probe.load_held_out(run)
    labels = np.concatenate([rows.row(0, i)["labels"] for i in range(rows.count(0))])
    asked_for = labels[labels != IGNORE]
    commonest = int(np.bincount(asked_for).argmax())
    with torch.no_grad():
        model.heads["masked_tokens"].bias[commonest] = 1e6  # this model always predicts one word
    found = probe.evaluate_masked_tokens(model, rows)
    assert found.scored == len(asked_for)
    assert found.accuracy == pytest.approx((asked_for == commonest).mean())


def test_the_loss_is_the_mean_over_masked_tokens(corpus: Path, tmp_path: Path) -> None:
    """Compared with a model that predicts the same distribution everywhere."""
    run = mini_run(corpus, tmp_path)
    model, rows = net(run), probe.load_held_out(run)
    labels = np.concatenate([rows.row(0, i)["labels"] for i in range(rows.count(0))])
    asked_for = labels[labels != IGNORE]
    log_p_V = np.log(np.random.default_rng(0).dirichlet(np.ones(run.vocab_size)))
    with torch.no_grad():
        model.trunk.table.zero_()
        model.heads["masked_tokens"].bias.copy_(torch.from_numpy(log_p_V))
    assert probe.evaluate_masked_tokens(model, rows).loss == pytest.approx(-log_p_V[asked_for].mean(), rel=1e-5)


def test_saved_weights_are_loaded_unchanged(corpus: Path, tmp_path: Path) -> None:
    run = mini_run(corpus, tmp_path)
    spec = ModelSpec(model=replace(run.model, parameter_sharing="all"), losses=run.losses, vocab_size=run.vocab_size)
    model = Model(spec.model, spec.losses, spec.vocab_size, seed=3)
    save_weights(dict(model.named_parameters()), spec, tmp_path)
    loaded = probe.load(tmp_path)
    assert not loaded.training
    for (name, ours), (_, theirs) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_missing_labels_and_losses_are_refused(corpus: Path, tmp_path: Path) -> None:
    packed = resampled(mini_run(corpus, tmp_path, losses=(MaskedTokens(),)), packing=Contiguous(unit="sentence"))
    with pytest.raises(BadInput, match="have no label"):
        probe.pairs(net(packed), probe.load_held_out(packed))
    paired = mini_run(corpus, tmp_path, losses=(SentencePair(),))
    with pytest.raises(BadInput, match="no loss of this model predicts masked tokens"):
        probe.evaluate_masked_tokens(net(paired), probe.load_held_out(paired))


def test_too_little_held_out_text_is_refused(tmp_path: Path) -> None:
    few = mini_run(mini_corpus(tmp_path / "few", num_train=2, num_validation=2), tmp_path)
    with pytest.raises(DataError, match="too few held-out pairs"):
        probe.pairs(net(few), probe.load_held_out(few))
    manifest = Manifest.load(few.corpus)
    replace(manifest, shards=tuple(one for one in manifest.shards if one.split == "train")).save(Path(few.corpus))
    with pytest.raises(DataError, match="no text is held out"):
        probe.load_held_out(few)
