"""Tasks with generated answers: models of each kind learn, prompts contain examples, and misfits are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.errors import BadInput
from preprocessing.rng import key
from preprocessing.schema import IGNORE
from preprocessing.tokenization import ByteLevelBPE, Unigram, Vocab, WordPiece, train
from training.evaluation import generation_tasks as module
from training.evaluation.eval_result import EvaluatedModel
from training.evaluation.generation_tasks import evaluate_generation, stops
from training.evaluation.prompt_formats import PromptDataset, copies_of, prompt_format_of
from training.evaluation.tasks import Classification, Generation, GenerationSettings, TaskItem, TaskPrompt, TextToText
from training.finetuning import Tuning
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import (
    Decoder,
    Encoder,
    EncoderDecoder,
    EngineSettings,
    LearnedPositions,
    Seq2SeqLearnedPositions,
    TwoStream,
)

WORDS = ["ape", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 1,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}
SIZES |= {"init_std": 0.1}


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return train(WordPiece(vocab_size=60), [" ".join(WORDS) + " = good bad"] * 30)


def net(name: str, vocab: Vocab) -> EvaluatedModel:
    trunk, loss = {
        "decoder": (Decoder(**SIZES, position_embedding=LearnedPositions(max_position_embeddings=32)), NextToken()),
        "encoder and decoder": (
            EncoderDecoder(**SIZES, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=32)),
            NextToken(),
        ),
        "encoder": (Encoder(**SIZES, position_embedding=LearnedPositions(max_position_embeddings=32)), MaskedTokens()),
        "unilm": (
            Encoder(
                **SIZES,
                position_embedding=LearnedPositions(max_position_embeddings=32),
                type_vocab_size=6,
                attention_mask="per_sequence",
            ),
            MaskedTokens(),
        ),
        "xlnet": (
            TwoStream(
                num_hidden_layers=1, hidden_size=32, num_attention_heads=2, hidden_dropout=0.0, type_vocab_size=3
            ),
            MaskedTokens(transform=False),
        ),
    }[name]
    return EvaluatedModel(ModelSpec(model=trunk, losses=(loss,), vocab_size=vocab.size), None, vocab)


def pretrained(given: EvaluatedModel) -> EvaluatedModel:
    """The same model with random weights."""
    model = Model(given.spec.model, given.spec.losses, given.spec.vocab_size, seed=3)
    return replace(given, weights={name: tensor.detach() for name, tensor in model.named_parameters()})


def reversals(count: int, seed: int) -> list[TaskItem]:
    """Two or three words, to be generated in reverse order."""
    rng, found = np.random.default_rng(seed), list[TaskItem]()
    for number in range(count):
        words = [WORDS[at] for at in rng.integers(len(WORDS), size=rng.integers(2, 4))]
        found.append(TaskItem(f"x:{number}", (TaskPrompt((), " ".join(words), " ="),), (" ".join(reversed(words)),)))
    return found


TASK = Generation(
    prompt="{a} =", answer="{b}", metrics=("exact", "bleu"), generation=GenerationSettings(max_new_tokens=6)
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("decoder", "pretrained"),
        ("encoder and decoder", "pretrained"),
        ("encoder", "random"),
        ("encoder", "pretrained"),
        ("unilm", "pretrained"),
    ],
)
def test_a_model_of_each_kind_learns_to_reverse(name: str, decoder: Any, vocab: Vocab) -> None:
    task = replace(TASK, generation=replace(TASK.generation, decoder=decoder, label_smoothing=0.05))
    items = {"train": reversals(300, 0), "dev": reversals(16, 1), "test": reversals(16, 2)}
    found = evaluate_generation(net(name, vocab), task, items, Tuning(learning_rate=5e-3, batch_size=32, max_steps=120))
    assert found.scores["dev"]["exact"] > 0.8
    assert found.scores["test"]["exact"] > 0.8
    assert len(found.losses) == 120
    assert found.notes[0].startswith("dev: bleu: nrefs:1|case:mixed")
    assert found.example == items["dev"][0].texts[0].text


def test_evaluation_is_repeatable_and_does_not_change_the_global_generator(vocab: Vocab) -> None:
    items = {"train": reversals(20, 0), "dev": reversals(5, 1)}
    for writing in (
        GenerationSettings(max_new_tokens=4),
        GenerationSettings(max_new_tokens=4, top_k=5),
        GenerationSettings(max_new_tokens=4, num_beams=3, length_penalty=2.0),
    ):
        task, state = replace(TASK, generation=writing), torch.get_rng_state()
        tuning = Tuning(batch_size=8, max_steps=3)
        first, again = (evaluate_generation(net("encoder", vocab), task, items, tuning) for _ in range(2))
        assert first == again
        assert torch.equal(torch.get_rng_state(), state)


def test_micro_batches_include_the_encoder_tokens(vocab: Vocab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = module.train_head
    monkeypatch.setattr(module, "train_head", lambda *given: [seen.append(given[3]), real(*given)])
    items = {"train": [TaskItem("x", (TaskPrompt((), "ape " * 15, "="),), ("bee bee bee",))], "dev": []}
    for name in ("decoder", "encoder and decoder"):
        evaluate_generation(
            net(name, vocab), TASK, items, Tuning(max_steps=1), machine=EngineSettings(micro_batch_tokens=1_000)
        )
    assert seen == [1_000, 200]


# Prompts.


def test_examples_come_from_train_and_long_questions_keep_their_end(vocab: Vocab) -> None:
    items = {"train": reversals(20, 0), "dev": reversals(3, 1)}
    shot = replace(
        TASK, generation=GenerationSettings(num_fewshot=2, fewshot_delimiter=" ", max_new_tokens=4, instruction="cat")
    )
    found = evaluate_generation(pretrained(net("decoder", vocab)), shot, items)
    lines = found.example.split("=")
    assert len(lines) == 4
    assert found.example.startswith("cat ")
    golds = [f"{item.texts[0].text} {item.gold[0]}" for item in items["train"]]
    assert sum(gold in found.example for gold in golds) >= 2
    assert found.losses == []
    long = TaskItem("x:1", (TaskPrompt((), "ape " * 40, "="),), ("bee",))
    found = evaluate_generation(pretrained(net("decoder", vocab)), TASK, {"dev": [long]})
    assert "dev: 1 of 1 questions do not fit the model: truncated" in found.notes
    strange = replace(long, texts=(TaskPrompt((), "Ω", "="),))
    for tuning, message in ((None, "dev: 1 of 2 questions have"), (Tuning(max_steps=1), "train: 1 of 4 examples have")):
        given = {"train": [*reversals(3, 0), strange], "dev": [*reversals(1, 1), strange]}
        notes = evaluate_generation(pretrained(net("decoder", vocab)), TASK, given, tuning).notes
        assert any(note.startswith(f"{message} words or characters that are not in the vocabulary") for note in notes)
        assert ("dev: 1 of 2 questions are also in train" in notes) == (tuning is not None)
    many = replace(shot, generation=replace(shot.generation, num_fewshot=9))
    assert any(
        "fewer examples" in note for note in evaluate_generation(pretrained(net("decoder", vocab)), many, items).notes
    )
    too_many = replace(shot, generation=replace(shot.generation, num_fewshot=99))
    with pytest.raises(BadInput, match=r"x:0: too few examples: got \d+ that differ"):
        evaluate_generation(pretrained(net("decoder", vocab)), too_many, items)


def test_stop_tokens_are_those_with_the_stop_text() -> None:
    pieces = train(ByteLevelBPE(vocab_size=300), ["a text\nof lines\n\nand more"] * 3)
    ends = stops(pieces, "\n")
    assert pieces.sep in ends
    assert all("\n" in pieces.decode([id]) for id in ends if id != pieces.sep)
    assert set(pieces.encode("\n")) <= set(ends)
    assert stops(pieces, "") == [pieces.sep]


@pytest.mark.parametrize(
    ("name", "changes", "tuning", "message"),
    [
        ("encoder", {}, None, "an encoder generates text only after fine-tuning"),
        ("decoder", {"decoder": "random"}, None, "it is not an encoder"),
        ("xlnet", {}, Tuning(), "this two_stream cannot be fine-tuned to generate"),
        (
            "decoder",
            {"max_new_tokens": 40},
            None,
            "invalid generation.max_new_tokens: got 40, which leaves no room for a question",
        ),
    ],
)
def test_an_unsuitable_model_is_refused_in_one_line(
    name: str, changes: Any, tuning: Tuning | None, message: str, vocab: Vocab
) -> None:
    task = replace(TASK, generation=replace(TASK.generation, **changes))
    with pytest.raises(BadInput, match=message) as caught:
        evaluate_generation(
            pretrained(net(name, vocab)), task, {"train": reversals(4, 0), "dev": reversals(2, 1)}, tuning
        )
    assert "\n" not in str(caught.value)


def test_a_permutation_language_model_generates_without_fine_tuning(vocab: Vocab) -> None:
    found = evaluate_generation(pretrained(net("xlnet", vocab)), TASK, {"dev": reversals(2, 1)})
    assert len(found.predictions["dev"]) == 2


def test_a_model_without_its_token_head_does_not_generate_without_fine_tuning(vocab: Vocab) -> None:
    whole = pretrained(net("xlnet", vocab))
    assert whole.weights is not None
    bare = replace(whole, weights={name: x for name, x in whole.weights.items() if name.startswith("trunk.")})
    with pytest.raises(BadInput, match=r"missing weight heads\.masked_tokens\.bias; give a model that still has"):
        evaluate_generation(bare, TASK, {"dev": reversals(2, 1)})


def test_unlabeled_items_are_generated_and_not_scored(vocab: Vocab) -> None:
    items = [replace(item, gold=None) for item in reversals(2, 1)]
    found = evaluate_generation(pretrained(net("decoder", vocab)), TASK, {"test": items})
    assert found.scores == {}
    assert len(found.predictions["test"]) == 2


# Sequences.


def test_a_decoder_predicts_only_the_answer(vocab: Vocab) -> None:
    form = prompt_format_of(net("decoder", vocab), GenerationSettings(max_new_tokens=6))
    question, answer = vocab.encode("ape bee ="), form.answer_ids("bee ape")[0]
    row = form.row(question, answer, key(0, "masking").at(0, 0))
    assert row["input_ids"].tolist() == [vocab.sep, *question, *vocab.encode("bee ape")]
    assert row["labels"].tolist() == [*[IGNORE] * 3, *vocab.encode("bee ape"), vocab.sep]
    assert form.prompt(question).ids.tolist() == [vocab.sep, *question]


def test_an_encoder_masks_only_the_answer_and_draws_new_masks_in_each_epoch(vocab: Vocab) -> None:
    form = prompt_format_of(net("unilm", vocab), GenerationSettings(max_new_tokens=6, target_mask_prob=0.5))
    question, answer = vocab.encode("ape bee ="), form.answer_ids("bee ape cat dog")[0]
    read = [vocab.cls, *question, vocab.sep]
    tuning = Tuning(epochs=30, batch_size=1)
    copies, spread = copies_of(form, 1, tuning)
    rows = [example[0] for example in PromptDataset(form, [(question, answer)], copies, seed=0)]
    assert len(rows) == spread.num_steps(len(rows)) == tuning.num_steps(1) == 30
    assert len({tuple(row["labels"]) for row in rows}) > 8
    for row in rows:
        targets = row["labels"] != IGNORE
        assert targets.any()
        assert not targets[: len(read)].any()
        assert row["labels"][targets].tolist() == np.array([*read, *answer])[targets].tolist()
        assert row["input_ids"][~targets].tolist() == np.array([*read, *answer])[~targets].tolist()
        assert row["token_type_ids"].tolist() == [4] * len(read) + [5] * len(answer)
        assert row["rank"].tolist() == [0] * len(read) + list(range(len(read), len(read) + len(answer)))
    masked = np.mean([np.mean(row["labels"][len(read) :] != IGNORE) for row in rows])
    assert masked == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_with_a_source_starts_as_in_pretraining(norm: Any) -> None:
    """The start tokens of T5's and PEGASUS's objectives, and of BART's."""
    pieces = train(Unigram(vocab_size=24, extra_ids=2), [" ".join(WORDS)] * 30)
    given = net("encoder and decoder", pieces)
    form = prompt_format_of(
        replace(given, spec=replace(given.spec, model=replace(given.spec.model, norm_position=norm))),
        GenerationSettings(max_new_tokens=6),
    )
    row = form.row(pieces.encode("ape"), form.answer_ids("bee")[0], key(0, "masking").at(0, 0))
    begins, reads = (pieces.pad, []) if norm == "pre" else (pieces.sep, [pieces.cls])
    assert row["input_ids"].tolist() == [begins, *pieces.encode("bee")]
    assert row["labels"].tolist() == [*pieces.encode("bee"), pieces.sep]
    assert row["source_input_ids"].tolist() == [*reads, *pieces.encode("ape"), pieces.sep]
    assert form.prompt(pieces.encode("ape")).ids.tolist() == [begins]


# Text to text.


def test_labels_are_generated_as_words(vocab: Vocab) -> None:
    of = Classification(text="a", label="b", labels=("0", "1"), metrics=("accuracy", "f1", "matthews"))
    task = TextToText(
        task=of, name="cat", label_words={"0": "bad", "1": "good"}, generation=GenerationSettings(max_new_tokens=4)
    )
    rng = np.random.default_rng(0)
    items = [
        TaskItem(f"x:{n}", (" ".join(WORDS[at] for at in words),), int(words[0] < 4))
        for n, words in enumerate(rng.integers(len(WORDS), size=(200, 3)))
    ]
    found = evaluate_generation(
        net("encoder and decoder", vocab),
        task,
        {"train": items[:150], "dev": items[150:]},
        Tuning(learning_rate=5e-3, max_steps=60),
    )
    assert found.scores["dev"]["accuracy"] > 0.9
    assert set(found.predictions["dev"]) <= {"0", "1"}
    assert found.example.startswith("cat sentence: ")


LABELED = TextToText(
    task=Classification(text="a", label="b", labels=("0", "1")), generation=GenerationSettings(max_new_tokens=4)
)
ITEMS = {
    split: [TaskItem(f"{split}:{n}", (" ".join(WORDS[:6] * 2),), n % 2) for n in range(4)] for split in ("train", "dev")
}


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("frozen_features", "last"),
        ("lm_loss_weight", 0.5),
        ("input_format", "gpt1"),
        ("no_answer_loss_weight", 0.5),
        ("both_orders", True),
        ("init_task", "mnli"),
    ],
)
def test_keys_without_effect_on_generation_are_refused(key: str, given: Any, vocab: Vocab) -> None:
    with pytest.raises(BadInput, match=f"invalid tuning.{key}: got {given!r}, expected .* for a generation task"):
        evaluate_generation(net("encoder and decoder", vocab), LABELED, ITEMS, Tuning(max_steps=1, **{key: given}))


@pytest.mark.parametrize(
    ("name", "decoder"),
    [
        ("encoder and decoder", "pretrained"),
        ("encoder", "random"),
        ("decoder", "pretrained"),
        ("encoder", "pretrained"),
    ],
)
def test_the_predictions_are_those_of_the_best_weights_on_dev(
    name: str, decoder: Any, vocab: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual, weights, of_kind, with_weights = list[float](), list[Any](), Generation.scores, module._with_weights

    def scores(task: Generation, items: Any, predictions: Any) -> dict[str, float]:
        actual.append(
            [0.2, 0.6, 0.6, 0.4][len(actual)] if len(actual) < 4 else 1.0
        )  # independent of the generated texts
        return of_kind(task, items, predictions) | {"exact": actual[-1]}

    def taken(model: Model, given: Any) -> Model:
        weights.append({name: tensor.detach().clone() for name, tensor in given.items()})
        return with_weights(model, given)

    monkeypatch.setattr(Generation, "scores", scores)
    monkeypatch.setattr(module, "_with_weights", taken)
    task = replace(TASK, generation=replace(TASK.generation, decoder=decoder))
    items = {"train": reversals(8, 0), "dev": reversals(4, 1), "test": reversals(4, 2)}
    tuning = Tuning(learning_rate=5e-3, batch_size=4, max_steps=8, num_evaluations=4)
    found = evaluate_generation(net(name, vocab), task, items, tuning)
    *on_way, last = weights
    assert len(on_way) == 4
    assert all(torch.equal(last[name], on_way[1][name]) for name in last)  # the first of equal scores
    assert not all(torch.equal(last[name], on_way[3][name]) for name in last)
    assert found.notes[0] == "used the checkpoint with the best dev score of 4 evaluations"
    plain = evaluate_generation(net(name, vocab), task, items, replace(tuning, num_evaluations=0))
    assert found.losses == plain.losses  # evaluation does not change the training


@pytest.mark.parametrize("dev", [{}, {"dev": [replace(item, gold=None) for item in ITEMS["dev"]]}])
def test_evaluations_during_training_require_a_labeled_dev_split(dev: Any, vocab: Vocab) -> None:
    with pytest.raises(BadInput, match=r"tuning\.num_evaluations: got 2, but no dev split has labels"):
        evaluate_generation(
            net("decoder", vocab), LABELED, {"train": ITEMS["train"], **dev}, Tuning(max_steps=1, num_evaluations=2)
        )


def test_evaluations_during_training_are_refused_with_zero_3(vocab: Vocab) -> None:
    machine = EngineSettings(precision="bf16", zero_stage=3)
    with pytest.raises(BadInput, match=r"with engine\.zero_stage 3 no worker has all weights"):
        evaluate_generation(net("decoder", vocab), LABELED, ITEMS, Tuning(num_evaluations=2), machine=machine)


def test_evaluations_during_training_use_the_first_labeled_dev_split(vocab: Vocab) -> None:
    unlabeled = [replace(item, gold=None) for item in ITEMS["dev"]]
    given = {"train": ITEMS["train"], "dev": unlabeled, "dev_mismatched": ITEMS["dev"]}
    found = evaluate_generation(net("decoder", vocab), LABELED, given, Tuning(max_steps=2, num_evaluations=2))
    assert set(found.scores) == {"dev_mismatched"}
    assert "used the checkpoint with the best dev score of 2 evaluations" in found.notes


@pytest.mark.parametrize("name", ["decoder", "encoder and decoder", "encoder"])
def test_truncation_in_train_is_noted(name: str, vocab: Vocab) -> None:
    long = TaskItem("x:1", (TaskPrompt((), "ape " * 40, "="),), ("bee " * 9,))
    found = evaluate_generation(
        net(name, vocab), TASK, {"train": [long, *reversals(3, 0)], "dev": reversals(2, 1)}, Tuning(max_steps=1)
    )
    assert found.notes[:2] == (
        "train: 1 of 4 questions do not fit the model: truncated",
        "train: 1 of 4 answers are truncated to 6 tokens (max_new_tokens)",
    )


def test_a_head_without_pretrained_weights_is_noted(vocab: Vocab) -> None:
    """An encoder without the transform of the masked language modeling head, as in a directory without heads."""
    items = {"train": reversals(4, 0), "dev": reversals(2, 1)}
    whole = pretrained(net("encoder", vocab))
    assert whole.weights is not None
    bare = replace(whole, weights={name: x for name, x in whole.weights.items() if name.startswith("trunk.")})
    actual = [evaluate_generation(each, TASK, items, Tuning(max_steps=1)).notes[0] for each in (whole, bare)]
    assert actual[0].startswith("dev: ")
    assert actual[1].startswith("randomly initialized, because the model has no such weights: heads.")
    found = evaluate_generation(
        replace(whole, weights=None), TASK, items, Tuning(max_steps=1)
    )  # no note if all weights are random, because that is intended
    assert not any("random" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["encoder and decoder", "decoder"])
def test_max_seq_length_and_dropout_of_the_tuning_take_effect(kind: str, vocab: Vocab) -> None:
    whole, cut = (
        evaluate_generation(net(kind, vocab), LABELED, ITEMS, Tuning(max_steps=1, max_seq_length=n)) for n in (0, 9)
    )
    assert whole.losses != cut.losses
    assert any("truncated" in note for note in cut.notes)
    dropped = evaluate_generation(net(kind, vocab), LABELED, ITEMS, Tuning(max_steps=1, dropout=0.5))
    assert dropped.losses != whole.losses


def test_a_length_without_room_for_a_question_is_refused(vocab: Vocab) -> None:
    with pytest.raises(
        BadInput,
        match=r"invalid tuning\.max_seq_length: got 8, which leaves no room for a question",
    ):
        evaluate_generation(net("decoder", vocab), LABELED, ITEMS, Tuning(max_steps=1, max_seq_length=8))
    assert evaluate_generation(
        net("encoder and decoder", vocab), LABELED, ITEMS, Tuning(max_steps=1, max_seq_length=8)
    ).losses


def test_an_unlabeled_split_has_predictions_and_no_score(vocab: Vocab) -> None:
    unlabeled = [replace(item, gold=None) for item in ITEMS["dev"]]
    given = {**ITEMS, "test": unlabeled}
    found = evaluate_generation(net("encoder and decoder", vocab), LABELED, given, Tuning(max_steps=1))
    assert (set(found.scores), len(found.predictions["test"])) == ({"dev"}, 4)


def test_unlabeled_train_items_are_ignored(vocab: Vocab) -> None:
    """One such item used to be an error of the whole task, in fine-tuning and in prompts."""
    known, tuning = reversals(8, 0), Tuning(batch_size=4, max_steps=1)
    hidden, dev = replace(known[0], place="x:8", gold=None), reversals(4, 1)
    found = evaluate_generation(net("decoder", vocab), TASK, {"train": [*known, hidden], "dev": [*dev, hidden]}, tuning)
    message = "1 of {} questions have no answer in the file, and are ignored"
    assert {f"train: {message.format(9)}", f"dev: {message.format(5)}"} <= {*found.notes}
    assert found.losses == evaluate_generation(net("decoder", vocab), TASK, {"train": known, "dev": dev}, tuning).losses
    shots = replace(TASK, generation=replace(TASK.generation, num_fewshot=1))
    assert (
        len(
            evaluate_generation(
                pretrained(net("decoder", vocab)), shots, {"train": [*known, hidden], "dev": dev}
            ).scores
        )
        == 1
    )
    with pytest.raises(BadInput, match="no training question has an answer"):
        evaluate_generation(net("decoder", vocab), TASK, {"train": [hidden], "dev": dev}, tuning)


def test_an_item_with_too_few_other_examples_is_left_out_and_noted(vocab: Vocab) -> None:
    shots, train = replace(TASK, generation=replace(TASK.generation, num_fewshot=2)), reversals(2, 0)
    items = {"train": train, "dev": [replace(train[0], place="dev:1"), *reversals(2, 1)]}
    found = evaluate_generation(pretrained(net("decoder", vocab)), shots, items)
    assert found.scores["dev"]["left_out"] == 1
    assert [answer is None for answer in found.predictions["dev"]] == [True, False, False]
    why = "dev:1: too few examples: got 1 that differ from the question, expected 2; lower num_fewshot"
    assert f"dev: 1 of 3 items are left out, and do not count in the scores: {why}" in found.notes
    with pytest.raises(BadInput, match=why):
        evaluate_generation(pretrained(net("decoder", vocab)), shots, {**items, "dev": items["dev"][:1]})
