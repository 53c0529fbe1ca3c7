"""Heads and losses: a sum and a count over the targets, independent of layout, micro-batches and precision."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from preprocessing import collate
from preprocessing.schema import IGNORE
from tests.training.batches import collate_padded, collate_unpadded, random_rows
from training.losses import (
    Adversarial,
    Loss,
    MaskedTokens,
    NextToken,
    ReplacedTokenDetection,
    SentencePair,
    SpanBoundary,
)
from training.losses.heads import cross_entropy
from training.losses.heads.cross_entropy import token_score
from training.model import Model
from training.model_spec import ModelSpec
from training.score import Score
from training.specs import Decoder, Encoder, LearnedPositions

ENCODER = Encoder(
    num_hidden_layers=1,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
DECODER = Decoder(
    num_hidden_layers=1,
    hidden_size=32,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=16),
    hidden_dropout=0.0,
    attention_dropout=0.0,
    init_std=0.2,
)
BERT = (MaskedTokens(), SentencePair())
VOCAB = 50
RAGGED = [5, 8, 1, 3]


def bert() -> Model:
    return Model(ENCODER, BERT, VOCAB, seed=0)


def vocabulary_logits(model: Model, batch: dict[str, Tensor]) -> Tensor:
    """Logits of the masked-token head at every token."""
    head = model.heads["masked_tokens"]
    return F.linear(head.features(model.trunk(batch)), model.trunk.tokens.weight, head.bias)


def test_masked_token_loss_is_the_sum_of_cross_entropies_at_the_labels() -> None:
    rows, model = random_rows(RAGGED, VOCAB), bert()
    logits_BSV = vocabulary_logits(model, collate_padded(rows, 8))
    labels_BS = torch.tensor([[*row["labels"], *[IGNORE] * (8 - len(row["labels"]))] for row in rows])
    wanted = F.cross_entropy(logits_BSV.transpose(1, 2), labels_BS, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(model(collate_padded(rows, 8))["masked_tokens"].loss, wanted)


def test_next_token_loss_is_the_sum_of_cross_entropies_of_the_tied_table() -> None:
    batch, model = collate_unpadded(random_rows([7], VOCAB, rate=1.0)), Model(DECODER, (NextToken(),), VOCAB, seed=0)
    logits_TV = model.trunk(batch) @ model.trunk.tokens.weight.T
    wanted = -logits_TV.log_softmax(-1)[torch.arange(7), batch["targets"]].sum()
    torch.testing.assert_close(model(batch)["next_token"].loss, wanted)


def test_pair_label_reads_the_first_token_of_each_sequence() -> None:
    batch, model = collate_unpadded(random_rows(RAGGED, VOCAB)), bert()
    head, first_BD = model.heads["pair_label"], model.trunk(batch)[[0, 5, 13, 14]]
    logits_B2 = head.classify(torch.tanh(head.pooler(first_BD)))
    wanted = F.cross_entropy(logits_B2, batch["next_sentence_label"], reduction="sum")
    torch.testing.assert_close(model(batch)["sentence_pair"].loss, wanted)


def test_correct_counts_targets_with_the_highest_score() -> None:
    batch, model = collate_unpadded(random_rows(RAGGED, VOCAB)), bert()
    right = vocabulary_logits(model, batch).argmax(-1)[batch["targets_at"]]
    right[2:] = (right[2:] + 1) % VOCAB
    assert int(model(batch | {"targets": right})["masked_tokens"].correct) == 2


@pytest.mark.parametrize("kind", ["masked_tokens", "sentence_pair"])
def test_scores_of_a_padded_and_an_unpadded_batch_are_equal(kind: str) -> None:
    rows, model = random_rows(RAGGED, VOCAB), bert()
    flat, rectangle = model(collate_unpadded(rows))[kind], model(collate_padded(rows, 12))[kind]
    assert (flat.count, flat.correct) == (rectangle.count, rectangle.correct)
    torch.testing.assert_close(flat.loss, rectangle.loss, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["masked_tokens", "sentence_pair"])
def test_scores_of_micro_batches_sum_to_those_of_the_batch(kind: str) -> None:
    rows, model = random_rows(RAGGED, VOCAB), bert()
    parts = [model(collate_unpadded(part))[kind] for part in (rows[:1], rows[1:])]
    whole = model(collate_unpadded(rows))[kind]
    assert sum(part.count for part in parts) == whole.count
    torch.testing.assert_close(parts[0].loss + parts[1].loss, whole.loss, rtol=1e-6, atol=0)


def test_a_batch_without_targets_has_zero_loss_and_zero_gradients() -> None:
    rows, model = random_rows([4, 4], VOCAB, rate=0.0), bert()
    score = model(collate_unpadded(rows))["masked_tokens"]
    score.loss.backward()
    assert (float(score.loss.detach()), score.count, int(score.correct)) == (0.0, 0, 0)
    assert not model.heads["masked_tokens"].transform.weight.grad.any()


@pytest.mark.parametrize("loss", [MaskedTokens(), SentencePair()])
def test_count_is_known_before_the_forward_pass(loss: MaskedTokens | SentencePair) -> None:
    rows = random_rows(RAGGED, VOCAB)
    score: Score = bert()(collate_unpadded(rows))[loss.kind]
    unpadded, padded = collate.collate_unpadded(rows), collate.collate_padded(rows, 8, pad=0)
    assert loss.count(unpadded) == loss.count(padded) == score.count > 0


def test_loss_is_float32_in_a_bf16_model() -> None:
    batch = collate_unpadded(random_rows(RAGGED, VOCAB))
    scores = bert().to(torch.bfloat16)(batch)
    assert {score.loss.dtype for score in scores.values()} == {torch.float32}
    torch.testing.assert_close(scores["masked_tokens"].loss, bert()(batch)["masked_tokens"].loss, rtol=0.02, atol=0)


def plain_score(feature: Tensor, table: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    """The oracle, which computes all logits at once."""
    return F.cross_entropy(F.linear(feature, table, bias), target, reduction="sum")


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("at_once", [1, 70, 1 << 23])
def test_slices_of_the_vocabulary_projection_change_neither_loss_nor_gradient(
    at_once: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "LOGITS_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(*size, generator=generator) for size in ((9, 4), (30, 4), (30,))]
    found, wanted = ([value.clone().requires_grad_() for value in values] for _ in range(2))
    target = torch.randint(30, (9,), generator=generator)
    score = token_score(found[0], found[1], found[2] if has_bias else None, target)
    loss = plain_score(wanted[0], wanted[1], wanted[2] if has_bias else None, target)
    torch.testing.assert_close(score.loss, loss)
    (score.loss * 3).backward()
    (loss * 3).backward()
    for ours, theirs in zip(found[: 2 + has_bias], wanted, strict=False):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_bf16_loss_over_many_targets_keeps_float32_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    feature, table = (torch.randn(*size, generator=generator).bfloat16() for size in ((3000, 16), (200, 16)))
    target = torch.randint(200, (3000,), generator=generator)
    wanted = plain_score(feature.double(), table.double(), None, target)
    torch.testing.assert_close(token_score(feature, table, None, target).loss.double(), wanted, rtol=1e-4, atol=0)


def test_the_embedding_table_gets_a_gradient_from_both_of_its_uses() -> None:
    batch, model = collate_unpadded(random_rows([8], VOCAB)), bert()
    model(batch)["masked_tokens"].loss.backward()
    used = set(batch["input_ids"].tolist())
    unused = [id for id in range(VOCAB) if id not in used]
    gradient_V = model.trunk.tokens.weight.grad.abs().sum(1)
    assert gradient_V[unused].min() > 0  # from its use in the output projection
    before = gradient_V.clone()
    model.trunk.tokens.weight.grad = None
    model(batch)["sentence_pair"].loss.backward()
    # from its use as input embeddings
    assert model.trunk.tokens.weight.grad.abs().sum(1).nonzero().squeeze(1).tolist() == sorted(used)
    assert before[sorted(used)].min() > 0


def test_the_table_may_have_more_rows_than_the_tokenizer_has_tokens() -> None:
    batch = collate_unpadded(random_rows([8], VOCAB))
    model = Model(ENCODER, BERT, VOCAB + 14, seed=0)
    assert np.isfinite(float(model(batch)["masked_tokens"].loss.detach()))


def test_masked_tokens_without_a_transform_require_embeddings_as_wide_as_the_model() -> None:
    with pytest.raises(ValueError, match="true if embedding_size differs from hidden_size"):
        Model(replace(ENCODER, embedding_size=16), (MaskedTokens(transform=False),), VOCAB, seed=0)


@pytest.mark.parametrize("losses", [(), (MaskedTokens(), MaskedTokens(weight=2.0))])
def test_a_model_without_a_loss_or_with_one_twice_is_refused(losses: tuple[MaskedTokens, ...]) -> None:
    with pytest.raises(ValueError, match="one or more different kinds"):
        ModelSpec(model=replace(ENCODER, num_hidden_layers=2), losses=losses, vocab_size=VOCAB)


def test_a_pair_without_a_label_is_not_predicted() -> None:
    """UniLM's sequences with one-way attention have no pair label, and their pair is not predicted."""
    labels = np.array([1, IGNORE, 0, IGNORE])
    assert SentencePair().count({"next_sentence_label": labels}) == 2
    model = Model(ENCODER, (SentencePair(),), VOCAB, seed=0).eval()
    rows = random_rows([5, 6, 7, 8], VOCAB)
    asked = [row | {"next_sentence_label": label} for row, label in zip(rows, labels, strict=True)]
    score = model(collate_unpadded(asked))["sentence_pair"]
    alone = model(collate_unpadded([asked[0], asked[2]]))["sentence_pair"]
    assert score.count == alone.count == 2
    torch.testing.assert_close(score.loss, alone.loss, rtol=0, atol=1e-6)


def test_pair_labels_with_the_higher_score_count_as_correct() -> None:
    batch, model = collate_unpadded(random_rows([*RAGGED, 4], VOCAB)), bert()
    best_B = model.heads["pair_label"].logits(model.trunk(batch)[batch["first_at"]]).argmax(-1)
    labels_B = torch.stack([*best_B[:3], 1 - best_B[3], torch.tensor(IGNORE)])
    score = model(batch | {"next_sentence_label": labels_B})["sentence_pair"]
    assert (int(score.correct), score.count) == (3, 4)


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        (MaskedTokens(), 3),
        (NextToken(), 3),
        (Adversarial(), 3),
        (SentencePair(), 1),
        (ReplacedTokenDetection(), 13),
        (ReplacedTokenDetection(predict_at="masked"), 3),
        (SpanBoundary(), 2),
    ],
)
def test_targets_of_a_batch_of_two_sequences_are_counted(loss: Loss, wanted: int) -> None:
    batch = {
        # the last one is at the end of its sequence, and so not between ordinary tokens
        "targets_at": np.array([2, 3, 12]),
        "targets": np.array([7, 8, 9]),
        "first_at": np.array([0, 6]),
        "lengths": np.array([6, 7]),
        "next_sentence_label": np.array([1, IGNORE]),
    }
    tensors = {name: torch.from_numpy(column) for name, column in batch.items()}
    assert loss.count(batch) == loss.count(tensors) == wanted
