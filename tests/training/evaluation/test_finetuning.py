from dataclasses import replace

import numpy as np
import pytest
import torch

from preprocessing.collate import collate_unpadded
from preprocessing.schema import IGNORE
from training.evaluation import Budget, finetune
from training.evaluation.finetuning import examples_of
from training.evaluation.tasks import LabeledExamples, Task
from training.finetuning import RowLabel, TaskModel
from training.losses import MaskedTokens, NextToken, ReplacedTokenDetection, SentencePair
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, GeneratorDiscriminator, LearnedPositions

ENCODER = ModelSpec(
    model=Encoder(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=64),
        hidden_dropout=0.1,
        init_std=0.1,
    ),
    losses=(MaskedTokens(), SentencePair()),
    vocab_size=50,
)
DECODER = ModelSpec(
    model=Decoder(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=64),
        init_std=0.1,
    ),
    losses=(NextToken(),),
    vocab_size=50,
)
TWIN = ModelSpec(
    model=GeneratorDiscriminator(
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        position_embedding=LearnedPositions(max_position_embeddings=64),
        generator_size_ratio=1.0,
        weight_sharing="all",
        init_std=0.1,
    ),
    losses=(MaskedTokens(), ReplacedTokenDetection()),
    vocab_size=50,
)
ALBERT = replace(ENCODER, model=replace(ENCODER.model, num_hidden_layers=2, parameter_sharing="all", embedding_size=16))
BUDGET = Budget(labels=60, steps=60, batch=10, peak=3e-3)


def examples(num: int, seed: int) -> LabeledExamples:
    """Sequences of 5 to 12 tokens; those of class 1 contain token 7, those of class 0 contain token 8."""
    rng = np.random.default_rng(seed)
    label_N = np.arange(num) % 2
    rows = []
    for label in label_N:
        ids_S = rng.integers(10, 50, rng.integers(5, 13))
        ids_S[rng.integers(1, len(ids_S) - 1)] = 7 if label else 8
        zeros_S = np.zeros(len(ids_S), np.int8)
        rows.append(
            {
                "input_ids": ids_S.astype(np.int32),
                "token_type_ids": zeros_S,
                "labels": np.full(len(ids_S), IGNORE, np.int32),
            }
        )
    return LabeledExamples(rows, label_N)


def classifier(spec: ModelSpec, classes: int, seed: int) -> TaskModel:
    return TaskModel(spec.model, (RowLabel(classes=classes),), spec.vocab_size, seed)


def tensors(given: LabeledExamples) -> dict[str, torch.Tensor]:
    """The sequences as an unpadded batch."""
    batch = collate_unpadded([row for example in examples_of(given) for row in example])
    return {name: torch.from_numpy(array) for name, array in batch.items()}


TASK = Task("seven", ("eight", "seven"), examples(100, seed=0), examples(200, seed=1))


@pytest.mark.parametrize("spec", [ENCODER, DECODER, TWIN], ids=["encoder", "decoder", "twin"])
def test_a_classifier_learns_a_feature_of_the_sequences(spec: ModelSpec) -> None:
    outcome = finetune(spec, None, TASK, BUDGET, seed=0)
    assert outcome.accuracy > 0.8
    assert outcome.chance == 0.5


def test_the_same_seed_gives_the_same_score() -> None:
    first = finetune(ENCODER, None, TASK, Budget(labels=20, steps=5), seed=3)
    torch.rand(17)
    assert finetune(ENCODER, None, TASK, Budget(labels=20, steps=5), seed=3) == first


def test_fine_tuning_does_not_change_the_global_random_state() -> None:
    before = torch.get_rng_state()
    finetune(ENCODER, None, TASK, Budget(labels=20, steps=2), seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_and_pretrained_differ_only_in_the_pretrained_weights() -> None:
    """With the random weights passed as pretrained ones, the score is the same, because everything else is equal."""
    start = classifier(ENCODER, 2, seed=4)
    weights = {name: weight.clone() for name, weight in start.named_parameters() if name.startswith("trunk.")}
    budget = Budget(labels=20, steps=5)
    pretrained, random = (finetune(ENCODER, given, TASK, budget, seed=4) for given in (weights, None))
    assert (pretrained.accuracy, pretrained.loss) == (random.accuracy, random.loss)
    assert random.notes == ()
    (note,) = pretrained.notes
    assert note.endswith("no such weights: heads.row_label.summary.pooler")


def test_trunk_and_pooler_are_initialized_from_pretraining_and_the_classifier_is_not() -> None:
    pretrained = Model(ENCODER.model, ENCODER.losses, ENCODER.vocab_size, seed=1)
    model = classifier(ENCODER, 3, seed=2)
    head = model.heads["row_label"]
    fresh = head.classify.weight.clone()
    missing = model.take_over(dict(pretrained.named_parameters()))
    assert torch.equal(model.trunk.tokens.weight, pretrained.trunk.tokens.weight)
    assert torch.equal(head.summary.pooler.weight, pretrained.heads["pair_label"].pooler.weight)
    assert torch.equal(head.classify.weight, fresh)
    assert missing == ["heads.row_label.classify.weight", "heads.row_label.classify.bias"]


def test_a_pooler_is_initialized_from_the_head_of_any_loss() -> None:
    pretrained = Model(ENCODER.model, ENCODER.losses, ENCODER.vocab_size, seed=1)
    weights = {name.replace(".pair_label.", ".another."): w for name, w in pretrained.named_parameters()}
    model = classifier(ENCODER, 3, seed=2)
    model.take_over(weights)
    pooler = model.heads["row_label"].summary.pooler
    assert torch.equal(pooler.weight, pretrained.heads["pair_label"].pooler.weight)


@pytest.mark.parametrize("spec", [ALBERT, TWIN], ids=["albert", "twin"])
def test_shared_weights_are_initialized_by_their_only_name(spec: ModelSpec) -> None:
    pretrained = Model(spec.model, spec.losses, spec.vocab_size, seed=1)
    model = classifier(spec, 3, seed=2)
    model.take_over(dict(pretrained.named_parameters()))
    wanted = pretrained.trunk.state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in model.trunk.state_dict().items())


def test_a_decoder_is_classified_by_its_last_token_and_an_encoder_by_its_first() -> None:
    batch = tensors(examples(2, seed=5))
    starts = [0, *batch["lengths"].cumsum(0).tolist()]
    for spec, wanted in ((ENCODER, starts[:2]), (DECODER, [starts[1] - 1, starts[2] - 1])):
        model = classifier(spec, 2, seed=0).eval()
        assert model.trunk.summary_at(batch).tolist() == wanted


def test_a_model_without_segments_accepts_pairs() -> None:
    """RoBERTa has one segment, GPT-2 none."""
    pairs = examples(4, seed=0)
    for row in pairs.rows:
        row["token_type_ids"][3:] = 1
    for spec in (replace(ENCODER, model=replace(ENCODER.model, type_vocab_size=1)), DECODER):
        model = classifier(spec, 2, seed=0)
        assert model.outputs(tensors(pairs))["row_label"].shape == (4, 2)


def test_on_step_is_called_after_each_step() -> None:
    reported: list[int] = []
    finetune(ENCODER, None, TASK, Budget(labels=20, steps=3), seed=3, on_step=reported.append)
    assert reported == [1, 2, 3]
