"""ELECTRA learns in the mini-world: both of its nets, and what the discriminator knows helps downstream.

The setting is that of reference/family.md D1, weight 5 and a generator as wide as the discriminator, but for the rate,
three times as high, and the steps, 1,200 of 3,000. With the weight 50 of the paper so small a run learns little more
than how many tokens are replaced (D5).

D1 guessed a generator below 1.8, a discriminator 0.05 below the base rate and an AUC of 0.8. Its own 3,000 steps gave
1.796, 0.045 and 0.766 here; with tables of 128 numbers, as transformers has them by default, 1.800, 0.041 and 0.750;
with weight 1 as well 1.790, 0.033 and 0.730. The generator is no worse than a masked language model of as many steps,
which loses 1.898 on the same rows: that D5 had one of 1.46 is likely due to its text.
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
from tests.training.batches import unpadded
from tests.training.learning.test_learning import TINY, Specials
from training.evaluation import Budget, finetune
from training.losses import Adversarial, Loss, MaskedTokens, ReplacedTokenDetection
from training.losses.heads.replaced_token_detection import original_ids
from training.model import Model, parameter_groups
from training.specs import GeneratorDiscriminator, LearnedPositions
from training.tasks import LabeledExamples, Task

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
    """[CLS] text [SEP], 15 % of the tokens chosen, of which 85 % are masked and the rest stay."""
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
    """AdamW, warm-up of 50 steps, then linearly to zero; 64 rows a step; gradients clipped at norm 1."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng, model = np.random.default_rng(seed), Model(ELECTRA, losses, Specials().size, seed)
    optimizer = torch.optim.AdamW(parameter_groups(model, decay=0.01), betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak * min((step + 1) / 50, 1 - step / steps)
        scores = model(unpadded(masked_rows(text, 64, rng, length)))
        parts = [loss.weight * scores[loss.kind].loss / scores[loss.kind].count for loss in losses]
        torch.stack(parts).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@dataclass(frozen=True)
class Found:
    """How the two nets do on held-out rows."""

    generator: float  # loss, nats a masked token
    discriminator: float  # loss, nats a token
    base: float  # that of knowing only how many tokens are replaced
    auc: float  # of telling a replaced token from another


@torch.no_grad()
def examine(model: Model, text: World, length: int = 48) -> Found:
    from sklearn.metrics import roc_auc_score  # slow to import

    torch.manual_seed(1)
    seen: list[Tensor] = []

    def watch(module: torch.nn.Module, given: tuple, score: object) -> None:
        hidden, read, _ = given
        seen.extend([model.heads["replaced"].logits(hidden), read["input_ids"] != original_ids(read)])

    handle = model.heads["replaced"].register_forward_hook(watch)
    scores = model(unpadded(masked_rows(text, 1000, np.random.default_rng(1), length)))
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
    """Sentences; in every second one the verb has the other number than determiner and particle."""
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
def test_a_short_run_learns_with_both_nets(train: World, held_out: World) -> None:
    found = examine(learn(train, steps=100, length=24, peak=5e-3), held_out, length=24)
    assert found.generator < unigram_entropy(held_out.ids_T) - 0.2
    assert found.discriminator < found.base


@pytest.mark.slow
@torch.no_grad()
def test_a_rewarded_generator_finds_words_that_fit_but_fewer_than_one_that_is_told(
    train: World, held_out: World
) -> None:
    """Seed 0: .020 of the samples are the text's own, .511 of one that learns to fill in masks; who guesses gets .002.
    The paper has .58 against .65 (3.2), after long runs."""
    batch = unpadded(masked_rows(held_out, 1000, np.random.default_rng(1), length=24))
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
def test_both_nets_learn_and_the_discriminator_knows_agreement(train: World, held_out: World) -> None:
    """Three seeds: 1.778, 1.832, 1.777; .030, .031, .032 below; AUC .727, .720, .725; .999, .997, .999 agree."""
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
