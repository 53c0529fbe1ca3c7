"""ELECTRA: what the discriminator reads and predicts, and where gradients stop."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.training.batches import collate_padded, collate_unpadded, random_rows
from tests.training.corpora import electra as electra_run
from tests.training.corpora import mini_run
from training.architectures.layout import layout
from training.data import open_loader
from training.engines.local import LocalEngine
from training.formats import build_model, half, save_weights
from training.formats.start import load_init_checkpoint
from training.loop import pretrain
from training.losses import Adversarial, Loss, MaskedTokens, ReplacedTokenDetection
from training.losses.heads import cross_entropy
from training.losses.heads.cross_entropy import token_sample
from training.losses.heads.replaced_token_detection import original_ids, select_positions
from training.model import Model
from training.model_spec import ModelSpec
from training.optimizers import Adafactor, AdamW, Lamb, Optimizer
from training.score import Score
from training.specs import EngineSettings, GeneratorDiscriminator, LearnedPositions, Phase

SMALL = GeneratorDiscriminator(
    num_hidden_layers=2, hidden_size=32, num_attention_heads=4, embedding_size=16, generator_size_ratio=0.25,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0, attention_dropout=0, init_std=0.2,
)  # fmt: skip
FROZEN = replace(SMALL, sample_from="frozen", generator_size_ratio=1.0)
LOSSES: tuple[Loss, ...] = (MaskedTokens(), ReplacedTokenDetection())
VOCAB = 70
RAGGED = [5, 12, 1, 7]


def twin(trunk: GeneratorDiscriminator = SMALL, losses: tuple[Loss, ...] = LOSSES, seed: int = 0) -> Model:
    """A model with random values in every tensor."""
    model = Model(trunk, losses, VOCAB, seed).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.empty_like(tensor).normal_(0, 0.1, generator=generator))
    return model


def rows(seed: int = 0) -> list[dict[str, Any]]:
    return random_rows(RAGGED, VOCAB, seed)


def scores_and_input(
    model: Model, batch: dict[str, Tensor], seed: int = 0
) -> tuple[dict[str, Score], dict[str, Tensor]]:
    """The scores, and the batch that the discriminator read."""
    seen: list[dict[str, Tensor]] = []
    watch = model.heads["replaced"].register_forward_hook(lambda module, given, score: seen.append(given[1]))
    torch.manual_seed(seed)
    scores = model(batch)
    watch.remove()
    return scores, seen[0]


def parts(model: Model, prefix: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in model.named_parameters() if name.startswith(prefix)}


# Input and targets of the discriminator.


def test_samples_replace_the_chosen_tokens_and_no_others() -> None:
    batch, model = collate_unpadded(rows()), twin().train()  # in evaluation mode, the samples are always the same
    _, read = scores_and_input(model, batch)
    elsewhere = torch.ones(len(batch["input_ids"]), dtype=torch.bool)
    elsewhere[batch["targets_at"]] = False
    assert torch.equal(read["input_ids"][elsewhere], batch["input_ids"][elsewhere])
    samples = torch.stack(
        [scores_and_input(model, batch, seed)[1]["input_ids"][batch["targets_at"]] for seed in range(30)]
    )
    assert all(len(set(column.tolist())) > 3 for column in samples.T)


def test_a_token_is_labeled_replaced_if_the_sample_differs_from_the_original() -> None:
    batch, model = collate_unpadded(rows()), twin()
    read_ids = original_ids(batch).clone()
    at_M = batch["targets_at"]
    read_ids[at_M[1:]] = (batch["targets"][1:] + 1) % VOCAB  # the first sample is correct
    read = {**batch, "input_ids": read_ids}
    hidden = torch.randn(len(read_ids), 32, generator=torch.Generator().manual_seed(0))
    score = model.heads["replaced"](hidden, read, model.trunk.table)
    label_T = torch.zeros(len(read_ids))
    label_T[at_M[1:]] = 1
    logit_T = model.heads["replaced"].logits(hidden)
    wanted = F.binary_cross_entropy_with_logits(logit_T, label_T, reduction="sum")
    torch.testing.assert_close(score.loss, wanted)
    assert int(score.correct) == int(((logit_T > 0) == label_T.bool()).sum())


def test_only_chosen_tokens_are_replaced() -> None:
    batch, model = collate_unpadded(rows()), twin()
    for seed in range(5):
        _, read = scores_and_input(model, batch, seed)
        changed = (read["input_ids"] != original_ids(batch)).nonzero().squeeze(1)
        assert set(changed.tolist()) <= set(batch["targets_at"].tolist())


def test_the_fraction_of_replaced_tokens_is_logged(corpus: Path, tmp_path: Path) -> None:
    run = electra_run(mini_run(corpus, tmp_path, phases=(Phase(seq_length=48, global_batch_size=9, steps=2),)))
    engine, reported = LocalEngine(build_model(run), run.optimizer, run.engine), dict[int, dict[str, float]]()
    pretrain(run, engine, reported.__setitem__)
    for step, metrics in reported.items():
        (batch,) = open_loader(run, 0, 1).at(step - 1)
        asked_for = len(batch["targets"]) / batch["lengths"].sum()
        assert 0.5 * asked_for < metrics["train/replaced_share"] <= asked_for  # a new model is rarely right
        assert 0 <= metrics["train/replaced_accuracy"] <= 1
    _, read = scores_and_input(model := twin(), batch := collate_unpadded(rows()))
    torch.manual_seed(0)
    score = model(batch)["replaced_token_detection"]
    assert int(score.metrics["replaced_share"]) == int((read["input_ids"] != original_ids(batch)).sum())
    assert score.count == len(batch["input_ids"])


@pytest.mark.parametrize("samples", ["generator", "frozen", "uniform"])
@pytest.mark.parametrize("allow_correct", [True, False])
def test_a_sample_may_be_correct_only_if_allowed(samples: Any, allow_correct: bool) -> None:
    losses = LOSSES if samples == "generator" else LOSSES[1:]
    trunk = replace(FROZEN if samples == "frozen" else SMALL, sample_from=samples, init_std=0.01)
    model = twin(replace(trunk, allow_correct=allow_correct), losses)
    batch = collate_unpadded(random_rows([16] * 64, VOCAB, rate=1.0))
    _, read = scores_and_input(model, batch)
    assert bool((read["input_ids"] == batch["targets"]).any()) == allow_correct


def test_samples_follow_the_softmax() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_V = torch.randn(20, generator=generator) * 2
    feature_MD = torch.ones(20_000, 1)
    uniform_M = torch.rand(20_000, generator=generator)
    token_M = token_sample(feature_MD, logits_V[:, None], None, uniform_M, None)
    expected_V = 20_000 * logits_V.softmax(0)
    found_V = torch.bincount(token_M, minlength=20)
    # chi-square with 19 degrees of freedom at p = .001
    assert float(((found_V - expected_V) ** 2 / expected_V).sum()) < 43.8


@pytest.mark.parametrize("at_once", [1, 70, 1 << 23])
def test_slices_of_the_vocabulary_projection_do_not_change_a_sample(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    feature_MD, table_VD = (torch.randn(*size, generator=generator) for size in ((9, 4), (30, 4)))
    uniform_M = torch.rand(9, generator=generator)
    p_MV = (feature_MD @ table_VD.T).softmax(-1)
    wanted_M = (p_MV.cumsum(-1) <= uniform_M[:, None]).sum(-1)
    assert torch.equal(token_sample(feature_MD, table_VD, None, uniform_M, None), wanted_M)


def test_the_same_seed_gives_the_same_scores_for_both_layouts() -> None:
    model = twin()
    flat, rectangle = (
        scores_and_input(model, collate_unpadded(rows()))[0],
        scores_and_input(model, collate_padded(rows(), 14))[0],
    )
    for kind, score in flat.items():
        assert (score.count, score.correct) == (rectangle[kind].count, rectangle[kind].correct)
        torch.testing.assert_close(score.loss, rectangle[kind].loss, rtol=1e-5, atol=0)


@pytest.mark.parametrize("at", ["all", "masked"])
@pytest.mark.parametrize("asks", ["replaced", "original"])
def test_the_number_of_targets_is_known_before_the_forward_pass(asks: Any, at: Any) -> None:
    loss = ReplacedTokenDetection(predict=asks, predict_at=at)
    model = twin(losses=(MaskedTokens(), loss))
    for batch in (collate_unpadded(rows()), collate_padded(rows(), 14)):
        scores, _ = scores_and_input(model, batch)
        assert (
            scores["replaced_token_detection"].count
            == loss.count(batch)
            == (25 if at == "all" else len(batch["targets"]))
        )


def test_padding_is_not_predicted() -> None:
    batch = collate_padded(rows(), 14)
    at_M = select_positions(batch, "all")
    assert at_M.tolist() == [14 * row + place for row, length in enumerate(RAGGED) for place in range(length)]


# Gradients.


def test_discriminator_loss_has_no_gradient_for_generator_weights() -> None:
    model = twin()
    scores_and_input(model, collate_unpadded(rows()))[0]["replaced_token_detection"].loss.backward()
    assert all(w.grad is None for w in parts(model, "trunk.generator").values())
    assert all(w.grad is None for w in parts(model, "heads.masked_tokens").values())
    assert all(w.grad is not None for w in parts(model, "trunk.discriminator").values())
    assert model.trunk.tokens.weight.grad.any()


def test_generator_loss_has_no_gradient_for_discriminator_weights() -> None:
    model = twin()
    scores_and_input(model, collate_unpadded(rows()))[0]["masked_tokens"].loss.backward()
    assert all(w.grad is None for w in parts(model, "trunk.discriminator").values())
    assert all(w.grad is not None for w in parts(model, "trunk.generator").values())


def test_both_models_share_only_the_embeddings() -> None:
    names = {name.split(".")[1] for name in parts(twin(), "trunk")}
    assert names == {"tokens", "positions", "segments", "embedding_norm", "discriminator", "generator"}
    model = twin()
    ours = {id(tensor) for tensor in parts(model, "trunk.discriminator").values()}
    assert not ours & {id(tensor) for tensor in parts(model, "trunk.generator").values()}


def test_fully_shared_models_have_the_weights_of_one() -> None:
    one = twin(replace(SMALL, generator_size_ratio=1.0, weight_sharing="all"))
    two = twin(replace(SMALL, generator_size_ratio=1.0))
    tower = sum(tensor.numel() for tensor in parts(two, "trunk.generator").values())
    assert one.num_parameters == two.num_parameters - tower
    scores, _ = scores_and_input(one, collate_unpadded(rows()))
    assert set(scores) == {"masked_tokens", "replaced_token_detection"}


def test_a_uniform_generator_has_no_weights() -> None:
    model = twin(replace(SMALL, sample_from="uniform"), (ReplacedTokenDetection(),))
    assert not parts(model, "trunk.generator")
    assert set(scores_and_input(model, collate_unpadded(rows()))[0]) == {"replaced_token_detection"}


def test_the_exported_discriminator_has_the_same_summary() -> None:
    batch, model = collate_unpadded(rows()), twin()
    kept, spec = half(model.state_dict(), model.spec, "discriminator")
    alone = Model(spec.model, spec.losses, VOCAB, seed=1).eval()
    alone.load_state_dict(kept)
    torch.testing.assert_close(model.trunk.summary(batch), alone.trunk(batch)[batch["first_at"]])


@pytest.mark.parametrize(
    "losses", [(MaskedTokens(),), (ReplacedTokenDetection(),), (*LOSSES, replace(ReplacedTokenDetection(), weight=1.0))]
)
def test_missing_or_repeated_losses_are_refused(losses: tuple[Loss, ...]) -> None:
    with pytest.raises(ValueError, match="invalid losses: got "):
        ModelSpec(model=SMALL, losses=losses, vocab_size=VOCAB)


# Two stages (3.2).


def test_a_frozen_generator_samples_like_the_encoder_it_comes_from(tmp_path: Path) -> None:
    encoder, model, batch = two_stages(tmp_path)
    _, read = scores_and_input(model.train(), batch)
    head = encoder.heads["masked_tokens"]
    feature_MD = head.features(encoder.trunk(batch)[batch["targets_at"]])
    torch.manual_seed(0)
    wanted_M = token_sample(feature_MD, encoder.trunk.table, head.bias, torch.rand(len(feature_MD)), None)
    assert torch.equal(read["input_ids"][batch["targets_at"]], wanted_M)


def test_the_discriminator_of_the_second_stage_starts_as_the_generator(tmp_path: Path) -> None:
    encoder, model, batch = two_stages(tmp_path)
    assert torch.equal(model.trunk.summary(batch), encoder.trunk.summary(batch))


@pytest.mark.parametrize(
    "spec",
    [
        AdamW(learning_rate=0.1, weight_decay=0.5),
        Lamb(learning_rate=0.1, weight_decay=0.5),
        Adafactor(learning_rate=0.1, weight_decay=0.5),
    ],
)
def test_no_optimizer_updates_frozen_weights(spec: Optimizer, tmp_path: Path) -> None:
    model = two_stages(tmp_path)[1].train()
    engine, before = (
        LocalEngine(model, spec, EngineSettings()),
        {n: w.detach().clone() for n, w in model.named_parameters()},
    )
    engine.backward(model(collate_unpadded(rows()))["replaced_token_detection"].loss)
    gradients = (tensor.grad for tensor in parts(model, "trunk.frozen.").values())
    assert not any(gradient.any() for gradient in gradients if gradient is not None)
    engine.step(0.1)
    for name, tensor in model.named_parameters():
        assert torch.equal(tensor, before[name]) == name.startswith("trunk.frozen."), name


def two_stages(folder: Path) -> tuple[Model, Model, dict[str, Tensor]]:
    """A masked language model, a generator-discriminator that starts from it, and a batch."""
    encoder = Model(FROZEN.generator_net, (MaskedTokens(),), VOCAB, seed=3).eval()
    save_weights(dict(encoder.named_parameters()), encoder.spec, folder)
    model = Model(FROZEN, (ReplacedTokenDetection(),), VOCAB, seed=4).eval()
    load_init_checkpoint(model, folder)
    return encoder, model, collate_unpadded(rows())


def test_a_frozen_generator_of_another_width_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"invalid model.sample_from: got 'frozen', expected frozen with model.generator_size_ratio 1"
    ):
        replace(FROZEN, generator_size_ratio=0.5)


# A generator that is rewarded for the discriminator's mistakes (3.2, appendix F).


def test_the_mean_gradient_of_the_generator_is_that_of_the_expected_reward() -> None:
    """One hidden token, so that every sample can be tried: the negative gradient of sum_v p(v) reward(v)."""
    model = twin(losses=(Adversarial(), ReplacedTokenDetection()))
    batch = collate_unpadded(random_rows([9], VOCAB, rate=0.0))
    batch |= {"targets_at": torch.tensor([4]), "targets": batch["input_ids"][[4]]}
    net, head, table_VD = model.trunk, model.heads["adversarial"], model.trunk.table

    def filled() -> Tensor:
        return net.generator(net.embed(batch), layout(batch, "bidirectional"))

    def reward(token: int) -> Tensor:
        read = {**batch, "input_ids": batch["input_ids"].index_fill(0, batch["targets_at"], token)}
        return model.heads["replaced"].surprise(net.discriminator(net.embed(read), layout(read, "bidirectional")), read)

    reward_V = torch.cat([reward(token) for token in range(VOCAB)])
    weights = list(net.generator.parameters()) + list(head.tokens.parameters())
    logits_1V = F.linear(head.tokens.features(filled()[[4]]), table_VD, head.tokens.bias)
    p_V = logits_1V.softmax(-1)[0]
    wanted = torch.autograd.grad((p_V * reward_V).sum(), weights)
    tried = [head(filled(), batch, table_VD, torch.tensor([v]), reward_V[[v]]).loss for v in range(VOCAB)]
    found = torch.autograd.grad((p_V.detach() * torch.stack(tried)).sum(), weights)
    for up, down in zip(wanted, found, strict=True):
        torch.testing.assert_close(-down, up, rtol=1e-4, atol=1e-6)


def test_the_baseline_learns_to_predict_the_reward() -> None:
    model = twin(losses=(Adversarial(), ReplacedTokenDetection()))
    score = scores_and_input(model, collate_unpadded(rows()))[0]["adversarial"]
    score.loss.backward()
    assert model.heads["adversarial"].baseline.weight.grad.any()
    assert all(w.grad is None for w in parts(model, "trunk.discriminator").values())
    hidden_TD, reward_M = (
        torch.zeros(25, 8),
        torch.full_like(collate_unpadded(rows())["targets"], 0.7, dtype=torch.float32),
    )
    batch, head = collate_unpadded(rows()), model.heads["adversarial"]
    sampled_M = batch["targets"]
    sure = head(hidden_TD, batch, model.trunk.table, sampled_M, reward_M)  # the baseline predicts one half: .693
    log_p_V = F.linear(head.tokens.features(hidden_TD[:1]), model.trunk.table, head.tokens.bias).log_softmax(-1)[0]
    taught = F.binary_cross_entropy(torch.full_like(reward_M, 0.5), torch.exp(-reward_M), reduction="sum")
    wanted = taught - ((0.7 - math.log(2)) * log_p_V[sampled_M]).sum()
    torch.testing.assert_close(sure.loss, wanted)


@pytest.mark.parametrize(
    "keys",
    [{"allow_correct": False}, {"sample_from": "uniform"}, {"generator_size_ratio": 1.0, "weight_sharing": "all"}],
)
def test_adversarial_requires_a_separate_generator_that_may_be_correct(keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="invalid losses: got "):
        ModelSpec(model=replace(SMALL, **keys), losses=(Adversarial(), ReplacedTokenDetection()), vocab_size=VOCAB)
    with pytest.raises(ValueError, match="invalid losses: got adversarial with model kind encoder, expected"):
        ModelSpec(model=SMALL.discriminator_net, losses=(Adversarial(), MaskedTokens()), vocab_size=VOCAB)


# The ablations of section 3.5.


def test_replace_mlm_predicts_the_originals_at_the_chosen_positions() -> None:
    batch, model = (
        collate_unpadded(rows()),
        twin(losses=(MaskedTokens(), ReplacedTokenDetection(predict="original", predict_at="masked"))),
    )
    scores, read = scores_and_input(model, batch)
    hidden_TD = model.trunk.discriminator(model.trunk.embed(read), layout(read, "bidirectional"))
    head = model.heads["replaced"]
    logits_MV = F.linear(head.features(hidden_TD[batch["targets_at"]]), model.trunk.table, head.bias)
    wanted = F.cross_entropy(logits_MV, batch["targets"], reduction="sum")
    torch.testing.assert_close(scores["replaced_token_detection"].loss, wanted)


def test_all_tokens_mlm_mixes_the_softmax_with_a_copy_of_the_input() -> None:
    batch, model = collate_unpadded(rows()), twin(losses=(MaskedTokens(), ReplacedTokenDetection(predict="original")))
    scores, read = scores_and_input(model, batch)
    hidden_TD = model.trunk.discriminator(model.trunk.embed(read), layout(read, "bidirectional"))
    head = model.heads["replaced"]
    p_TV = F.linear(head.tokens.features(hidden_TD), model.trunk.table, head.tokens.bias).softmax(-1)
    copy_T1 = head.copy(hidden_TD).sigmoid()
    mixed_TV = copy_T1 * F.one_hot(read["input_ids"], VOCAB) + (1 - copy_T1) * p_TV
    torch.testing.assert_close(mixed_TV.sum(-1), torch.ones(len(p_TV)))
    wanted = -mixed_TV.gather(1, original_ids(batch)[:, None]).log().sum()
    torch.testing.assert_close(scores["replaced_token_detection"].loss, wanted)
