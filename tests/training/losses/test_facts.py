"""Each loss states its own facts. No other module lists the kinds, so that a new loss is one class and one line."""

import subprocess
import sys
import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from torch import Tensor, nn
from torch.nn import functional as F

from preprocessing.spec import spec
from tests import facts
from tests.training.corpora import mini_run
from training import losses as room
from training import run as runs
from training.engines.local import LocalEngine
from training.formats import build_model
from training.loop import pretrain
from training.losses import (
    Adversarial,
    Loss,
    LossContext,
    LossPart,
    MaskedTokens,
    NextToken,
    ReplacedTokenDetection,
    SentencePair,
    SpanBoundary,
)
from training.losses.heads.cross_entropy import tokens_at
from training.run import Run
from training.score import Score
from training.specs import ModelTensors, Phase, VectorsSpec

LOSSES: list[Loss] = facts.parts_of(
    Loss,
    MaskedTokens(transform=False),
    NextToken(bias=True),
    ReplacedTokenDetection(predict="original"),
    ReplacedTokenDetection(predict_at="masked"),
)
NOTHING = LossContext()

every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def test_every_loss_of_the_union_is_tested() -> None:
    facts.assert_covers(LOSSES, Loss)


@every_loss
def test_every_loss_has_every_fact(loss: Loss) -> None:
    facts.assert_every_fact(loss, LossPart)


def test_losses_of_different_kinds_have_different_descriptions() -> None:
    facts.assert_described([replace(loss, weight=1.0) for loss in LOSSES], NOTHING)


@every_loss
def test_a_scale_sets_only_keys_of_the_loss(loss: Loss) -> None:
    facts.assert_shrinks_its_keys(loss)


@every_loss
def test_the_visibility_and_models_of_a_loss_are_among_those_of_trunks(loss: Loss) -> None:
    assert set() < loss.sees <= {"bidirectional", "causal", "per_sequence"}
    assert set() < loss.reads <= {"net", "generator", "discriminator"}


def test_only_the_span_boundary_head_is_not_exported() -> None:
    assert {loss.kind for loss in LOSSES if loss.not_exported} == {"span_boundary"}


def test_a_scale_changes_only_the_weight_of_replaced_token_detection() -> None:
    changed = {loss.kind: loss.scale_overrides for loss in LOSSES if loss.scale_overrides}
    assert changed == {"replaced_token_detection": {"tiny": {"weight": 5.0}, "small": {"weight": 5.0}}}


@pytest.mark.parametrize("fact", ["kind", "accuracy"])
def test_no_two_losses_have_the_same_name_or_accuracy(fact: str) -> None:
    names = [getattr(member(), fact) for member in typing.get_args(Loss)]
    assert len(set(names)) == len(names)


@every_loss
def test_a_description_starts_with_a_weight_other_than_one(loss: Loss) -> None:
    described = replace(loss, weight=0.5).describe(NOTHING)
    assert described == f"0.5 x {replace(loss, weight=1.0).describe(NOTHING)}"


@pytest.mark.parametrize(
    ("loss", "context", "described"),
    [
        (MaskedTokens(), NOTHING, "masked tokens"),
        (MaskedTokens(), LossContext(permuted=True), "tokens in permuted order"),
        (MaskedTokens(z_loss=1e-4), NOTHING, "masked tokens, with z-loss 0.0001"),
        (NextToken(z_loss=1e-4, weight=2.0), NOTHING, "2 x next token, with z-loss 0.0001"),
        (SentencePair(), LossContext(label_says="sentence order prediction"), "sentence order prediction"),
        (NextToken(), NOTHING, "next token"),
        (NextToken(), LossContext(target="the whole text"), "the whole text"),
        (SpanBoundary(), NOTHING, "span boundaries"),
        (ReplacedTokenDetection(), NOTHING, "50 x replaced tokens"),
        (ReplacedTokenDetection(predict="original", weight=1.0), NOTHING, "original tokens"),
        (ReplacedTokenDetection(predict_at="masked", weight=1.0), NOTHING, "replaced tokens, only selected ones"),
        (Adversarial(), NOTHING, "tokens that fool the discriminator"),
    ],
)
def test_a_description_uses_its_context(loss: Loss, context: LossContext, described: str) -> None:
    assert loss.describe(context) == described


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        (MaskedTokens(), True),
        (SentencePair(), False),
        (NextToken(), True),
        (SpanBoundary(), True),
        (ReplacedTokenDetection(), False),
        (ReplacedTokenDetection(predict="original"), True),
        (Adversarial(), True),
    ],
)
def test_losses_with_token_targets_project_to_the_vocabulary(loss: Loss, wanted: bool) -> None:
    assert loss.names_tokens == wanted


@pytest.mark.parametrize("name", ["training.losses", "training.optimizers", "training.state"])
def test_a_recipe_can_be_checked_without_torch(name: str) -> None:
    code = f"import sys, {name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# A loss that no other module mentions.


class FocalHead(nn.Module):
    """A head with its own metric: the number of targets with a probability below one tenth."""

    bias: nn.Parameter

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, hidden: Tensor, batch: Mapping[str, Tensor], table_VD: Tensor) -> Score:
        logits_MV = F.linear(tokens_at(hidden, batch["targets_at"]), table_VD, self.bias)
        log_p_M = logits_MV.log_softmax(-1).gather(1, batch["targets"][:, None]).squeeze(1)
        loss = -((1 - log_p_M.exp()) ** self.gamma * log_p_M).sum()
        correct = (logits_MV.argmax(-1) == batch["targets"]).sum()
        return Score(loss, len(log_p_M), correct, {"hard_share": (log_p_M.exp() < 0.1).sum()})


@spec
class FocalTokens:
    """Masked tokens with a focal loss (arXiv:1708.02002, 3.2)."""

    kind: Literal["focal_tokens"] = "focal_tokens"
    weight: float = 1.0
    gamma: float = 2.0
    head_name: ClassVar[str] = "focal_tokens"
    required_columns: ClassVar[frozenset[str]] = frozenset({"labels"})
    sees: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    reads: ClassVar[frozenset[str]] = frozenset({"net"})
    accuracy: ClassVar[str] = "focal_accuracy"
    perplexity: ClassVar[bool] = False
    names_tokens: ClassVar[bool] = True
    rewards: ClassVar[bool] = False
    rewarded: ClassVar[bool] = False
    kept_logits: ClassVar[int] = 0
    z_loss: ClassVar[float] = 0.0
    not_exported: ClassVar[str] = "it exists only in a test"
    scale_overrides: ClassVar[Mapping[str, Mapping[str, object]]] = {}

    def describe(self, context: LossContext) -> str:
        return "hard masked tokens"

    def count(self, batch: Mapping[str, Any]) -> int:
        return len(batch["targets"])

    def targets(self, work: Any) -> float:
        return work.targets

    def head(self, trunk: Any, vocab_size: int) -> nn.Module:
        return FocalHead(self.gamma)

    def tensors(self, trunk: Any, vocab_size: int) -> ModelTensors:
        return ModelTensors((VectorsSpec("bias", (vocab_size,)),), ())

    def fits(self, trunk: Any) -> str:
        return ""


@pytest.fixture
def focal(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of BERT with a loss that only the union mentions."""
    union = Loss | FocalTokens
    monkeypatch.setattr(room, "Loss", union)
    monkeypatch.setattr(runs, "Loss", union)
    return mini_run(corpus, tmp_path, losses=(FocalTokens(gamma=1.0), SentencePair()), eval_every=20)


def test_a_loss_that_only_the_union_mentions_is_trained_and_logged(focal: Run) -> None:
    logged: dict[int, dict[str, float]] = {}
    engine = LocalEngine(build_model(focal), focal.optimizer, focal.engine)
    pretrain(focal, engine, lambda step, metrics: logged.setdefault(step, {}).update(metrics))
    first, last = logged[1], logged[20]
    assert last["train/focal_tokens/loss"] < first["train/focal_tokens/loss"] - 0.3
    for prefix in ("train", "eval"):
        assert 0 <= last[f"{prefix}/focal_accuracy"] <= 1
        assert 0 < last[f"{prefix}/hard_share"] <= 1
        assert f"{prefix}/perplexity" not in last


def test_logged_losses_and_perplexities_have_no_z_loss(corpus: Path, tmp_path: Path) -> None:
    """The first step has a learning rate of 0, so that both runs have the same weights."""
    seen: dict[float, dict[str, float]] = {}
    for z_loss in (0.0, 0.1):
        losses = MaskedTokens(z_loss=z_loss), SentencePair()
        short = (Phase(seq_length=48, global_batch_size=9, steps=1),)
        run = mini_run(corpus, tmp_path / str(z_loss), losses=losses, phases=short, eval_every=1)
        engine = LocalEngine(build_model(run), run.optimizer, run.engine)
        pretrain(run, engine, lambda step, metrics, z=z_loss: seen.setdefault(z, {}).update(metrics))
    for prefix in ("train", "eval"):
        for name in ("loss", "masked_tokens/loss", "perplexity", "masked_accuracy"):
            assert seen[0.1][f"{prefix}/{name}"] == pytest.approx(seen[0.0][f"{prefix}/{name}"], rel=1e-5)
        assert seen[0.1][f"{prefix}/z_loss"] > 0
        assert f"{prefix}/z_loss" not in seen[0.0]
    assert seen[0.1]["train/grad_norm"] != pytest.approx(seen[0.0]["train/grad_norm"], rel=1e-3)


def test_a_loss_that_only_the_union_mentions_survives_json(focal: Run) -> None:
    assert Run.from_json(focal.to_json()) == focal
