"""ELECTRA learns in the mini-world: both of its models learn, and the discriminator helps a downstream task.

The setup is that of reference/family.md D1: weight 5 and a generator as wide as the discriminator. But the learning
rate is three times as high, and the run has 1,200 steps instead of 3,000. With the paper's weight of 50, such a small
run learns little more than the fraction of replaced tokens (D5).

D1 expected a generator loss below 1.8, a discriminator loss 0.05 below the base rate and an AUC of 0.8. The 3,000 steps
of D1 gave 1.796, 0.045 and 0.766 here. With embeddings of size 128, the default of transformers, they gave 1.800, 0.041
and 0.750. With weight 1 in addition, they gave 1.790, 0.033 and 0.730. The generator is no worse than a masked language
model with as many steps, which has a loss of 1.898 on the same sequences. The loss of 1.46 in D5 is probably due to its
text.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from preprocessing.masking import TokenMasking
from preprocessing.objectives import MaskedLM
from preprocessing.schema import IGNORE, Row
from tests.mini_world import AT, CLS, SEP, World, unigram_entropy, world
from tests.training.batches import collate_unpadded
from tests.training.learning.test_learning import TINY, Specials
from training.evaluation import Budget, finetune
from training.evaluation.tasks import LabeledExamples, Task
from training.losses import Adversarial, Loss, MaskedTokens, ReplacedTokenDetection
from training.losses.heads.replaced_token_detection import original_ids
from training.model import Model, parameter_groups
from training.specs import GeneratorDiscriminator, LearnedPositions

ELECTRA = GeneratorDiscriminator(
    **TINY,
    position_embedding=LearnedPositions(max_position_embeddings=64),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    generator_size_ratio=1.0,
)
LOSSES: tuple[Loss, ...] = (MaskedTokens(), ReplacedTokenDetection(weight=5.0))
ADVERSARIAL: tuple[Loss, ...] = (Adversarial(), ReplacedTokenDetection(weight=5.0))


def masked_rows(text: World, count: int, rng: np.random.Generator, length: int = 48) -> list[Row]:
    """[CLS] text [SEP]; 15 % of the tokens are chosen, of which 85 % are masked and the others kept."""
    made = []
    for start in rng.integers(len(text.ids_T) - length, size=count):
        ids_S = np.concatenate([[CLS], text.ids_T[start : start + length - 2], [SEP]])
        row: Row = {
            "input_ids": ids_S,
            "token_type_ids": np.zeros(length),
            "special_tokens_mask": np.isin(ids_S, [CLS, SEP]),
        }
        made.append(
            MaskedLM(mask_replace_prob=0.85, random_replace_prob=0.0)(
                row | {"hits": TokenMasking()(row, rng)}, Specials(), rng
            )
        )
    return made


def learn(
    text: World, steps: int, length: int = 48, peak: float = 3e-3, seed: int = 0, losses: tuple[Loss, ...] = LOSSES
) -> Model:
    """Train by AdamW: warmup of 50 steps, then linear decay to zero; 64 sequences per step; gradients clipped at norm
    1."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng, model = np.random.default_rng(seed), Model(ELECTRA, losses, Specials().size, seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=0.01), betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak * min((step + 1) / 50, 1 - step / steps)
        scores = model(collate_unpadded(masked_rows(text, 64, rng, length)))
        parts = [loss.weight * scores[loss.kind].loss / scores[loss.kind].count for loss in losses]
        torch.stack(parts).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@dataclass(frozen=True)
class Found:
    """Results of both models on held-out sequences."""

    generator: float  # loss, nats per masked token
    discriminator: float  # loss, nats per token
    base: float  # loss if only the fraction of replaced tokens is known
    auc: float  # of distinguishing replaced tokens from others


@torch.no_grad()
def examine(model: Model, text: World, length: int = 48) -> Found:
    from sklearn.metrics import roc_auc_score  # slow to import

    torch.manual_seed(1)
    seen: list[Tensor] = []

    def watch(module: torch.nn.Module, given: tuple, score: object) -> None:
        hidden, read, _ = given
        seen.extend([model.heads["replaced"].logits(hidden), read["input_ids"] != original_ids(read)])

    handle = model.heads["replaced"].register_forward_hook(watch)
    scores = model(collate_unpadded(masked_rows(text, 1000, np.random.default_rng(1), length)))
    handle.remove()
    logit_T, replaced_T = seen
    rate = float(replaced_T.float().mean())
    return Found(
        generator=float(scores["masked_tokens"].loss) / scores["masked_tokens"].count,
        discriminator=float(scores["replaced_token_detection"].loss) / scores["replaced_token_detection"].count,
        base=-rate * np.log(rate) - (1 - rate) * np.log(1 - rate),
        auc=float(roc_auc_score(replaced_T, logit_T)),
    )


def agreement(text: World, count: int) -> LabeledExamples:
    """Sentences; in every second one, the verb has the wrong number."""
    start_M = np.append(np.flatnonzero(text.sentence_starts_T), len(text.ids_T))
    label_N = np.arange(count) % 2
    rows: list[Row] = []
    for number, label in enumerate(label_N):
        ids_S = np.concatenate([[CLS], text.ids_T[start_M[number] : start_M[number + 1]], [SEP]])
        if label:
            verb = (ids_S[3] - AT["verb"]) % 24
            ids_S[3] += 12 if verb < 12 else -12
        blank_S = np.zeros(len(ids_S), np.int8)
        rows.append({"input_ids": ids_S, "token_type_ids": blank_S, "labels": np.full(len(ids_S), IGNORE, np.int32)})
    return LabeledExamples(rows, label_N)


@pytest.mark.slow
def test_both_models_learn_in_a_short_run(train: World, held_out: World) -> None:
    found = examine(learn(train, steps=100, length=24, peak=5e-3), held_out, length=24)
    assert found.generator < unigram_entropy(held_out.ids_T) - 0.2
    assert found.discriminator < found.base


@pytest.mark.slow
@torch.no_grad()
def test_a_rewarded_generator_learns_less_than_a_masked_language_model(train: World, held_out: World) -> None:
    """Seed 0: .020 of the samples are the original tokens, .511 for a masked language model; guessing gives .002. The
    paper has .58 and .65 (3.2), after long runs."""
    batch = collate_unpadded(masked_rows(held_out, 1000, np.random.default_rng(1), length=24))
    right = []
    for losses in (ADVERSARIAL, LOSSES):
        with torch.enable_grad():
            model = learn(train, steps=600, length=24, peak=5e-3, losses=losses)
        torch.manual_seed(1)
        score = model(batch)[losses[0].kind]
        right.append(int(score.correct) / score.count)
    assert 0.01 < right[0] < right[1] / 2


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_both_models_learn_and_the_discriminator_detects_agreement(train: World, held_out: World) -> None:
    """Three seeds: generator losses 1.778, 1.832, 1.777; discriminator losses .030, .031, .032 below the base rate; AUC
    .727, .720, .725; agreement .999, .997, .999."""
    model = learn(train, steps=1200)
    found = examine(model, held_out)
    assert found.generator < 1.9
    assert found.discriminator < found.base - 0.025
    assert found.auc > 0.7
    pool, test = agreement(held_out, 600), agreement(world(seed=2, num_documents=80), 600)
    task = Task("agreement", ("agrees", "does not"), pool, test)
    budget, weights = Budget(labels=600, steps=450), dict(model.named_parameters())
    scores = [finetune(model.spec, weights, task, budget, seed=seed).accuracy for seed in range(3)]
    assert np.mean(scores) > 0.9, scores
