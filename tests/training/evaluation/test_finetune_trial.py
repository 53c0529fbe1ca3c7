"""One trial of a grid: every key of a tuning has its effect, or is refused in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, get_type_hints

import pytest
import torch
from torch import Tensor

from preprocessing.errors import BadInput
from preprocessing.tokenization import INSERTS, ByteLevelBPE, Template, Vocab, WordPiece, train, with_inserts
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.evaluation.finetune_trial import engine_of, finetune_task
from training.evaluation.scoring import of_repeated
from training.evaluation.tasks import (
    Classification,
    ExtractiveQA,
    Grid,
    LabeledTask,
    Regression,
    TaskItem,
    TaskPrompt,
    TokenClassification,
)
from training.evaluation.tasks.grid import VARIED
from training.finetuning import TaskModel, Tuning, groups, orders, train_head
from training.losses import MaskedTokens, NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, Encoder, EngineSettings, LearnedPositions

TEXT: Final = "Ada Lovelace wrote the first program . It computes numbers ; Babbage said so in London , long ago ."
PAIR: Final = Classification(text="a", text_pair="b", label="label", labels=("no", "yes"))
SPAN: Final = ExtractiveQA(squad_version=2, doc_stride=8)
WORDS: Final = TEXT.split()
BASE: Final = Tuning(learning_rate=1e-3, batch_size=4, epochs=2, seed=1)
ENCODER: Final = Encoder(
    num_hidden_layers=2,
    hidden_size=16,
    num_attention_heads=2,
    position_embedding=LearnedPositions(max_position_embeddings=40),
)
DECODER: Final = Decoder(
    num_hidden_layers=2,
    hidden_size=16,
    num_attention_heads=2,
    position_embedding=LearnedPositions(max_position_embeddings=40),
    norm_position="post",
)


@pytest.fixture(scope="module")
def encoder() -> EvaluatedModel:
    vocab = train(WordPiece(vocab_size=120), [TEXT] * 40)
    spec = ModelSpec(model=ENCODER, losses=(MaskedTokens(),), vocab_size=vocab.size)
    return EvaluatedModel(spec, dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters()), vocab)


@pytest.fixture(scope="module")
def decoder() -> EvaluatedModel:
    vocab = train(ByteLevelBPE(vocab_size=300), [TEXT] * 40)
    # an embedding table with unused rows
    spec = ModelSpec(model=DECODER, losses=(NextToken(),), vocab_size=vocab.size + 5)
    return EvaluatedModel(spec, dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters()), vocab)


def pairs(count: int) -> list[TaskItem]:
    return [
        TaskItem(f"{i}", (" ".join(WORDS[i : i + 7]), " ".join(WORDS[i + 2 : i + 7 - i % 3])), i % 2)
        for i in range(count)
    ]


def questions(count: int) -> list[TaskItem]:
    """Questions; every second one has no answer in its context."""
    return [
        TaskItem(
            f"{i}",
            (f"what is {WORDS[i]}", TEXT),
            (f"{i}", [WORDS[i]], [TEXT.index(WORDS[i])]) if i % 2 else (f"{i}", [], []),
        )
        for i in range(count)
    ]


def items(task: LabeledTask) -> dict[str, list[TaskItem]]:
    made = questions(10) if task.kind == "extractive_qa" else pairs(10)
    return {"train": made[:8], "dev": made[8:]}


def run(net: EvaluatedModel, tuning: Tuning, task: LabeledTask = PAIR, **more: Any) -> EvalResult:
    return finetune_task(net, task, items(task), tuning, length=24, **more)


# Every key of a tuning.

CHANGES: Final[Mapping[str, Any]] = {
    "optimizer": "adafactor",
    "learning_rate": 1e-2,
    "batch_size": 8,
    "epochs": 3.0,
    "max_steps": 3,
    "early_stopping_patience": 2,
    "warmup_ratio": 0.5,
    "lr_schedule": "constant",
    "min_lr_ratio": 0.5,
    "weight_decay": 0.5,
    "beta2": 0.5,
    "eps": 1e-2,
    "max_grad_norm": 1e-3,
    "bias_correction": False,
    "layerwise_lr_decay": 0.5,
    "gradual_unfreezing": True,
    "frozen_features": "scalar_mix",
    "dropout": 0.5,
    "lm_loss_weight": 0.5,
    "input_format": "gpt1",
    "both_orders": True,
    "sum_orders": True,
    "no_answer_loss_weight": 0.5,
    "max_seq_length": 12,
    "num_evaluations": 2,
    "init_task": "mnli",
    "seed": 2,
}
BESIDE: Final[Mapping[str, Mapping[str, Any]]] = {
    "head_layer_gap": {"layerwise_lr_decay": 0.5},
    "early_stopping_patience": {"num_evaluations": 8},
    "init_task": {},
    "sum_orders": {"input_format": "gpt1"},
}
DECODERS: Final = ("lm_loss_weight", "input_format", "sum_orders")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [field.name for field in fields(Tuning)])
def test_each_key_of_a_tuning_changes_the_training(name: str, encoder: EvaluatedModel, decoder: EvaluatedModel) -> None:
    """The losses differ; for `init_task`, the set of allowed checkpoints differs. A key that is missing in CHANGES
    fails."""
    changed: Any = 1 if name == "head_layer_gap" else CHANGES[name]
    before = replace(BASE, **BESIDE.get(name, {}))
    if name == "early_stopping_patience":  # the dev score stays the same
        before = replace(before, max_steps=8, learning_rate=1e-12)
    after = replace(before, **{name: changed})
    assert after != before
    net, task = (decoder if name in DECODERS else encoder), (SPAN if name == "no_answer_loss_weight" else PAIR)
    if name == "init_task":
        with pytest.raises(
            BadInput, match=r"tuning\.init_task: got 'mnli', but the model has pretrained weights; fine-tune on"
        ):
            run(net, after, task)
        assert run(net, after, task, begins="mnli").losses
        with pytest.raises(BadInput, match="fine-tuned on mnli; fine-tune on that task first"):
            run(net, before, task, begins="mnli")
        return
    if name == "num_evaluations":
        assert run(net, after, task).notes[-1] == "used the checkpoint with the best dev score of 2 evaluations"
        return
    assert run(net, before, task).losses != run(net, after, task).losses


def test_each_key_of_a_grid_is_passed_to_its_trials() -> None:
    """A key of both a grid and a tuning has the same type and default; all other keys are listed here."""
    base = Grid(learning_rates=(1e-3,), batch_sizes=(4,), epochs=(2,), citation="x")
    of_tuning, of_grid = ({field.name: field for field in fields(cls)} for cls in (Tuning, Grid))
    hints = get_type_hints(Tuning), get_type_hints(Grid)
    for name in (of_tuning.keys() & of_grid.keys()) - {"max_steps", "epochs"}:
        assert of_tuning[name].default == of_grid[name].default, name
        assert hints[0][name] == hints[1][name], name
        beside = BESIDE.get(name, {})
        changed: Any = 1 if name == "head_layer_gap" else CHANGES[name]
        (cell,) = replace(base, **beside, **{name: changed}).cells()
        (plain,) = replace(base, **beside).cells()
        assert getattr(cell, name) == changed != getattr(plain, name)
    assert of_tuning.keys() - of_grid.keys() == {
        "learning_rate",
        "batch_size",
        "warmup_ratio",
        "seed",
    }  # learning_rates, batch_sizes, warmup_steps, num_seeds
    reported = {
        "learning_rates",
        "batch_sizes",
        "warmup_steps",
        "num_seeds",
        "reported_statistic",
        "citation",
        "unverified",
        "note",
    }  # tested below; three are documentation only
    assert of_grid.keys() - of_tuning.keys() == reported
    assert of_tuning.keys() >= VARIED


def test_the_trials_of_a_grid_are_all_combinations() -> None:
    grid = Grid(
        learning_rates=(1e-5, 2e-5), batch_sizes=(16, 32), max_steps=100, warmup_steps=25, num_seeds=2, citation="x"
    )
    cells = grid.cells()
    assert [(one.learning_rate, one.batch_size, one.seed) for one in cells][:3] == [
        (1e-5, 16, 0),
        (1e-5, 16, 1),
        (1e-5, 32, 0),
    ]
    assert {(one.max_steps, one.warmup_ratio, one.num_steps(5)) for one in cells} == {(100, 0.25, 100)}
    assert [one.epochs for one in replace(grid, max_steps=0, epochs=(2, 3), warmup_steps=0.1, num_seeds=1).cells()][
        :2
    ] == [2, 3]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"frozen_features": "last", "layerwise_lr_decay": 0.5},
            "invalid layerwise_lr_decay: got 0.5, expected 1.0 with frozen_features 'last'",
        ),
        (
            {"frozen_features": "scalar_mix", "dropout": 0.1},
            "invalid dropout: got 0.1, expected None with frozen_features 'scalar_mix'",
        ),
        ({"head_layer_gap": 1}, "invalid head_layer_gap: got 1, expected 2 without layerwise_lr_decay"),
        (
            {"optimizer": "adafactor", "beta2": 0.9},
            "invalid optimizer: got 'adafactor', expected adamw, because beta2",
        ),
        ({"min_lr_ratio": 2.0}, "min_lr_ratio: got 2.0"),
        ({"sum_orders": True}, "invalid sum_orders: got True, expected False, except with input_format gpt1"),
        (
            {"sum_orders": True, "input_format": "gpt1", "both_orders": True},
            "invalid sum_orders: got True, expected False, except",
        ),
    ],
)
def test_keys_without_effect_are_refused(keys: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Tuning(**keys)


@pytest.mark.parametrize("key", [{"lm_loss_weight": 0.5}, {"input_format": "gpt1"}])
def test_keys_for_decoders_are_refused_for_an_encoder(key: Mapping[str, Any], encoder: EvaluatedModel) -> None:
    with pytest.raises(
        BadInput, match=r"which requires a decoder without adaptive softmax, but the model is: encoder, 2 layers"
    ):
        run(encoder, replace(BASE, **key))


def test_keys_that_a_kind_of_task_does_not_support_are_refused() -> None:
    one_text = Classification(text="a", label="label", labels=("no", "yes"))
    tag = TokenClassification(labels=("O", "B-PER"))
    added = {"sum_orders": True, "input_format": "gpt1"}
    for task, key, reason in (
        (one_text, {"both_orders": True}, "expected false for a task with one text"),
        (one_text, added, r"tuning\.sum_orders: got true, expected false for a task with one text"),
        (tag, added, r"tuning\.sum_orders: got True, not supported by token_classification tasks"),
        (SPAN, added, r"tuning\.sum_orders: got True, not supported by extractive_qa tasks"),
        (
            PAIR,
            {"no_answer_loss_weight": 0.5},
            r"tuning\.no_answer_loss_weight: got 0\.5, not supported by classification tasks",
        ),
        (tag, {"both_orders": True}, "not supported by token_classification tasks"),
        (
            ExtractiveQA(squad_version=1),
            {"no_answer_loss_weight": 0.5},
            "expected 0 with squad_version 1",
        ),
        (SPAN, {"both_orders": True}, "not supported by extractive_qa tasks"),
    ):
        with pytest.raises(BadInput, match=reason):
            task.with_tuning(Tuning(**key))  # type: ignore[attr-defined]


# The effect of the keys.


def test_both_orders_train_on_each_order_and_score_one(encoder: EvaluatedModel) -> None:
    task = Regression(text="a", text_pair="b", label="score", min_value=0, max_value=5).with_tuning(
        Tuning(both_orders=True)
    )
    given = [TaskItem("1", ("Ada wrote", "so London"), 2.5)]
    training, scored = (task.encode(given, encoder.vocab, 24, training=one) for one in (True, False))
    first, second = (example[0] for example in training.examples)
    assert (training.item_of, scored.item_of) == ([0, 0], [0])
    assert encoder.vocab.decode(first["input_ids"]) == "[CLS] ada wrote [SEP] so london [SEP]"
    assert encoder.vocab.decode(second["input_ids"]) == "[CLS] so london [SEP] ada wrote [SEP]"
    assert first["value"] == second["value"] == 2.5


SIMILAR: Final[Mapping[str, LabeledTask]] = {
    "classification": PAIR,
    "regression": Regression(text="a", text_pair="b", label="label", min_value=0, max_value=1),
}


@pytest.mark.parametrize("kind", SIMILAR)
def test_sum_orders_adds_the_states_of_both_orders_before_the_head(kind: str, decoder: EvaluatedModel) -> None:
    """Section 3.3 of GPT-1: the first ten losses equal those of a plain loop that encodes each order separately."""
    tuning = Tuning(
        learning_rate=1e-3,
        batch_size=3,
        max_steps=10,
        warmup_ratio=0,
        lr_schedule="constant",
        weight_decay=0,
        max_grad_norm=0,
        eps=1e-8,
        seed=1,
    )
    tuning = replace(tuning, input_format="gpt1", sum_orders=True)
    vocab, still = (
        with_inserts(decoder.vocab, decoder.spec.vocab_size),
        replace(DECODER, hidden_dropout=0.0, attention_dropout=0.0),
    )
    task = SIMILAR[kind].with_tuning(tuning)
    targets = [replace(target, dropout=0.0) for target in task.targets()]  # type: ignore[type-var]
    ours, plain = (TaskModel(still, targets, vocab.size, seed=1, new_rows=3) for _ in range(2))
    examples = task.encode(pairs(8), vocab, 24, training=True).examples
    losses, expected = list[float](), list[float]()
    engine = engine_of(ours, tuning.optim(10), EngineSettings(), groups(ours, tuning))
    train_head(engine, examples, tuning, 60, lambda done, loss: losses.append(loss))

    rows, head = Template(vocab, 24), plain.heads[targets[0].kind]
    linear = head.classify if kind == "classification" else head.regress
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)

    def extract(first: str, second: str) -> Tensor:
        ids = torch.from_numpy(rows.row(first, second).ids).long()
        batch = {"input_ids": ids, "positions": torch.arange(len(ids)), "token_type_ids": torch.zeros_like(ids)}
        more = {"lengths": torch.tensor([len(ids)]), "first_at": torch.tensor([0])}
        return plain.trunk.states(batch | more)[-1]  # type: ignore[operator, union-attr]

    for index_N in orders(8, 3, 10, tuning.seed):
        chosen = [pairs(8)[number] for number in index_N]
        actual = torch.stack([linear(extract(*one.texts) + extract(*one.texts[::-1])) for one in chosen])  # type: ignore[operator]
        golds = torch.tensor([one.gold for one in chosen])
        loss = (
            torch.nn.functional.cross_entropy(actual, golds)
            if kind == "classification"
            else ((actual[:, 0] - golds) ** 2).mean()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert len(set(losses)) == len(losses) == 10


def test_sum_orders_gives_one_answer_for_either_order(decoder: EvaluatedModel) -> None:
    tuning = replace(BASE, input_format="gpt1", sum_orders=True, lm_loss_weight=0.5, dropout=0.0)
    swapped = [replace(item, texts=item.texts[::-1]) for item in pairs(10)]
    task = SIMILAR["regression"]
    given = {"train": pairs(8), "dev": pairs(10), "test": swapped, "test_unlabelled": [replace(pairs(1)[0], gold=None)]}
    found = finetune_task(decoder, task, given, tuning, length=24)
    assert found.predictions["dev"] == pytest.approx(found.predictions["test"], rel=1e-5)
    assert len(set(found.predictions["dev"])) > 1
    assert len(found.predictions["test_unlabelled"]) == 1


def test_questions_that_are_also_in_train_are_counted(encoder: EvaluatedModel) -> None:
    train, tuning = pairs(8), replace(BASE, max_steps=1)
    blanks = [replace(train[0], texts=(f" {train[0].texts[0]} ", train[0].texts[1])), *pairs(10)[7:]]
    swapped = [replace(item, texts=item.texts[::-1]) for item in train]
    unlabeled = [replace(item, gold=None) for item in train]
    given = {"train": train, "dev": blanks, "test": swapped, "test_unlabelled": unlabeled}
    found = finetune_task(encoder, PAIR, given, tuning, length=24)
    assert [note for note in found.notes if "also in train" in note] == ["dev: 2 of 4 questions are also in train"]


def test_texts_of_any_kind_of_task_are_compared_without_surrounding_spaces() -> None:
    for texts, other in (
        (("a", ("b ", "c")), (" a", ("b", "c"))),
        ((("Ada", "wrote"),), (("Ada", "wrote"),)),
        ((TaskPrompt((), "Ada wrote\n"),), (TaskPrompt((), "Ada wrote"),)),
    ):
        one, same = TaskItem("1", texts, 0), TaskItem("2", other, 1)
        assert of_repeated([one], [same, TaskItem("3", ("else",), 1)]) == ["1 of 2 questions are also in train"]
        assert of_repeated([replace(one, texts=("x",))], [same]) == []


def test_dropout_is_set_by_the_tuning(encoder: EvaluatedModel) -> None:
    changed = Tuning(dropout=0.0).trunk(ENCODER)
    assert (changed.hidden_dropout, changed.attention_dropout) == (0.0, 0.0)
    assert Tuning().trunk(ENCODER) is ENCODER
    assert replace(changed, hidden_dropout=0.1, attention_dropout=0.1) == ENCODER


def test_sequences_in_the_format_of_gpt_1(decoder: EvaluatedModel) -> None:
    """One text: Start text Extract. A pair: Start text Delim text Extract. The three tokens have the rows after those
    of the model's table."""
    rows = decoder.spec.vocab_size
    vocab = with_inserts(decoder.vocab, rows)
    start, delimiter, extract = (rows, rows + 1, rows + 2)
    template, plain = Template(vocab, 24), decoder.vocab.encode
    one, two = template.row("Ada wrote"), template.row("Ada wrote", " so")
    assert one.ids.tolist() == [start, *plain("Ada wrote"), extract]
    assert two.ids.tolist() == [start, *plain("Ada wrote"), delimiter, *plain(" so"), extract]
    assert vocab.size == rows + 3
    assert vocab.hash != decoder.vocab.hash
    written = Template(vocab, 100).row(INSERTS[0]).ids  # the name in the text is not the token
    assert start not in written[1:].tolist()


def test_new_rows_are_initialized_small_and_old_rows_are_kept(decoder: EvaluatedModel) -> None:
    """N(0, .02) for three additional rows (GPT-1 4.1)."""
    from training.finetuning import RowLabel, TaskModel

    rows = decoder.spec.vocab_size
    wide = replace(DECODER, hidden_size=512, init_std=0.3)
    table = TaskModel(wide, [RowLabel(classes=2)], rows + 3, seed=0, new_rows=3).get_parameter("trunk.tokens.weight")
    assert float(table[-3:].detach().std()) == pytest.approx(0.02, rel=0.1)
    assert float(table[:-3].detach().std()) == pytest.approx(0.3, rel=0.1)
    model = TaskModel(DECODER, [RowLabel(classes=2)], rows + 3, seed=0, new_rows=3)
    assert decoder.weights is not None
    model.take_over(decoder.weights)
    assert torch.equal(model.get_parameter("trunk.tokens.weight")[:rows], decoder.weights["trunk.tokens.weight"])


def test_the_auxiliary_loss_is_the_next_token_loss_of_each_sequence(decoder: EvaluatedModel) -> None:
    """The first loss is the task loss plus half of the mean, over sequences, of the mean loss of their tokens."""
    still = replace(DECODER, hidden_dropout=0.0, attention_dropout=0.0)
    net = replace(decoder, spec=replace(decoder.spec, model=still))
    tuning = replace(BASE, max_steps=1, batch_size=8)
    alone, beside = (run(net, replace(tuning, lm_loss_weight=weight)).losses[0] for weight in (0.0, 0.5))
    model = Model(still, (NextToken(),), net.spec.vocab_size, seed=0).eval()
    assert net.weights is not None
    model.load_state_dict(net.weights)
    encoded = PAIR.encode(items(PAIR)["train"], net.vocab, 24, training=True)
    of_rows = []
    for (row,) in encoded.examples:
        ids = torch.from_numpy(row["input_ids"]).long()
        at = torch.arange(len(ids))
        batch = {
            "input_ids": ids,
            "positions": at,
            "lengths": torch.tensor([len(ids)]),
            "token_type_ids": torch.zeros_like(ids),
        }
        with torch.no_grad():
            logits = model.trunk({**batch, "first_at": torch.tensor([0])}) @ model.trunk.table.T  # type: ignore[operator, union-attr]
        of_rows.append(float(torch.nn.functional.cross_entropy(logits[:-1], ids[1:])))
    assert beside - alone == pytest.approx(0.5 * sum(of_rows) / len(of_rows), abs=1e-4)


def test_a_head_may_predict_that_a_question_has_no_answer() -> None:
    """As in ELECTRA: the lowest of its logits over the windows replaces the score of the first token."""
    task = SPAN.with_tuning(Tuning(no_answer_loss_weight=0.5))
    assert [(target.kind, target.weight) for target in task.targets()] == [("answer_span", 1.0), ("no_answer", 0.5)]
    vocab = train(WordPiece(vocab_size=120), [TEXT] * 40)
    encoded = task.encode(questions(2), vocab, 20, training=True)
    assert {int(row["label"]) for (row,), of in zip(encoded.examples, encoded.item_of, strict=True) if of == 0} == {1}
    assert {int(row["label"]) for (row,), of in zip(encoded.examples, encoded.item_of, strict=True) if of == 1} == {0}

    def answers(logit: Sequence[float]) -> list[float | None]:
        logits = torch.zeros(len(encoded.examples), 20, 2)
        heads = {"answer_span": logits, "no_answer": torch.tensor(logit)}
        return [answer.no_answer for answer in task.predictions(questions(2), encoded, [(range(len(logits)), heads)])]

    count = [encoded.item_of.count(number) for number in (0, 1)]
    assert min(count) > 1
    found = answers([3.0, *[5.0] * (count[0] - 1), *[5.0] * (count[1] - 1), -2.0])
    assert found == [3.0, -2.0]


def test_the_weights_with_the_best_dev_score_are_used(encoder: EvaluatedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    actual, of_regress = list[float](), Regression.scores

    def scores(task: Regression, items: Sequence[TaskItem], predictions: Sequence[float]) -> dict[str, float]:
        found = of_regress(task, items, predictions)
        actual.append(found["spearman"])
        return found

    monkeypatch.setattr(Regression, "scores", scores)
    task = Regression(text="a", text_pair="b", label="label", min_value=0, max_value=1)
    learned = [replace(item, gold=number / 8) for number, item in enumerate(pairs(8))]
    # the longer the training, the lower the dev score
    opposite = [replace(item, gold=1 - item.gold) for item in learned]
    kept: dict[str, Tensor] = {}
    tuning = replace(
        BASE, learning_rate=0.01, batch_size=4, epochs=8, num_evaluations=8, lr_schedule="constant", warmup_ratio=0
    )
    given = {"train": learned, "dev": opposite}
    found = finetune_task(encoder, task, given, tuning, length=24, keep=kept.update)
    on_way, last = actual[:8], actual[8:]
    assert last[:1] == [max(on_way)]
    assert on_way[-1] < max(on_way)  # otherwise the last weights would be the best
    best = 2 * (on_way.index(max(on_way)) + 1)
    notes = [note for note in found.notes if not note.startswith("dev: constant prediction")]  # of these few steps
    assert notes[-2:] == [
        "used the checkpoint with the best dev score of 8 evaluations",
        "dev: 8 of 8 questions are also in train",
    ]
    # the learning rate is constant, so that a shorter training has the same first steps
    stopped: dict[str, Tensor] = {}
    finetune_task(
        encoder, task, given, replace(tuning, num_evaluations=0, max_steps=best), length=24, keep=stopped.update
    )
    assert all(torch.equal(kept[name], stopped[name]) for name in stopped)


def test_excess_evaluations_happen_after_each_update(encoder: EvaluatedModel) -> None:
    assert (
        run(encoder, replace(BASE, max_steps=3, num_evaluations=52)).notes[-1]
        == "used the checkpoint with the best dev score of 3 evaluations"
    )


def test_training_stops_if_dev_does_not_improve(encoder: EvaluatedModel) -> None:
    """With a learning rate near 0 all scores are equal, so the first evaluation stays the best."""
    still = replace(BASE, max_steps=8, num_evaluations=8, learning_rate=1e-12)
    stopped = run(encoder, replace(still, early_stopping_patience=3))
    assert len(stopped.losses) == 4
    assert stopped.notes[-1] == (
        "stopped after step 4 of 8: 3 evaluations without a better dev score; used the checkpoint with the best of 4 "
        "evaluations"
    )
    whole = run(encoder, still)
    assert len(whole.losses) == 8
    assert whole.scores == stopped.scores
    once = run(encoder, replace(still, early_stopping_patience=1))
    assert "stopped after step 2 of 8: 1 evaluation without a better dev score" in once.notes[-1]
    with pytest.raises(ValueError, match="early_stopping_patience: got 8, expected an integer from 0 to 7"):
        replace(still, early_stopping_patience=8)


def test_evaluations_during_training_are_refused_with_zero_3(encoder: EvaluatedModel) -> None:
    machine = EngineSettings(precision="bf16", zero_stage=3)
    with pytest.raises(
        BadInput, match=r"num_evaluations: got 1, but with engine\.zero_stage 3 no worker has all weights"
    ):
        run(encoder, replace(BASE, num_evaluations=1), machine=machine)


def test_evaluations_during_training_require_a_labeled_dev_split(encoder: EvaluatedModel) -> None:
    unlabeled = [replace(item, gold=None) for item in pairs(4)]
    for given in ({"train": pairs(4)}, {"train": pairs(4), "dev": unlabeled}, {"train": pairs(4), "test": pairs(4)}):
        with pytest.raises(
            BadInput, match=r"tuning\.num_evaluations: got 1, but no dev split has labels; use another grid"
        ):
            finetune_task(encoder, PAIR, given, replace(BASE, num_evaluations=1), length=24)


def test_fine_tuned_weights_initialize_the_next_task(encoder: EvaluatedModel) -> None:
    """RoBERTa's RTE starts from the weights fine-tuned on MNLI: trunk and pooler."""
    kept = dict[str, Tensor]()
    run(encoder, BASE, keep=lambda weights: kept.update({name: x.clone() for name, x in weights.items()}))
    from training.finetuning import RowLabel, TaskModel

    model = TaskModel(ENCODER, [RowLabel(classes=3)], encoder.spec.vocab_size, seed=5)
    random = model.take_over(kept)
    assert random == ["heads.row_label.classify.weight", "heads.row_label.classify.bias"]
    moved = "trunk.blocks.1.attention.out.weight"
    assert encoder.weights is not None
    assert not torch.equal(model.get_parameter(moved), encoder.weights[moved])
    after = run(replace(encoder, weights=kept), replace(BASE, init_task="mnli"), begins="mnli")
    assert after.losses != run(encoder, BASE).losses


def test_fine_tuning_is_repeatable_and_does_not_change_the_model(encoder: EvaluatedModel) -> None:
    assert encoder.weights is not None
    before = {name: x.detach().clone() for name, x in encoder.weights.items()}
    assert run(encoder, BASE) == run(encoder, BASE)
    assert all(torch.equal(before[name], x) for name, x in encoder.weights.items())


def test_a_vocabulary_with_sentinels_cannot_be_extended() -> None:
    vocab: Vocab = train(WordPiece(vocab_size=120), [TEXT] * 40)
    with pytest.raises(AssertionError, match="sentinels"):
        with_inserts(replace(vocab, sentinels=2), vocab.size)


def test_the_no_answer_threshold_of_dev_is_used_for_all_splits(encoder: EvaluatedModel) -> None:
    """These models cannot see whether a question has an answer: dev gives the best threshold, and test uses it."""
    given = {"train": questions(8), "test": questions(4), "dev": [q for q in questions(10) if q.gold[1]]}
    found = finetune_task(encoder, SPAN, given, BASE, length=24)
    assert found.scores["dev"]["f1"] == pytest.approx(found.scores["dev"]["best_f1"])
    at = found.scores["dev"]["best_f1_thresh"]
    (note,) = [note for note in found.notes if "logits" in note]
    assert note.startswith(f"the no-answer threshold is {at:.4g} logits")
    assert all((answer.text == answer.best) == (answer.no_answer <= at) for answer in found.predictions["test"])
    without = finetune_task(encoder, SPAN, {"train": questions(8), "test": questions(4)}, BASE, length=24)
    assert "the no-answer threshold is 0, because no dev split has labels" in without.notes


def test_truncated_sequences_are_noted(encoder: EvaluatedModel) -> None:
    long = [replace(item, texts=(TEXT, TEXT)) for item in pairs(2)]
    found = finetune_task(encoder, PAIR, {"train": [*pairs(6), *long], "dev": pairs(4)}, BASE, length=64)
    assert found.notes == (
        "sequences have at most 40 tokens, not 64: the limit of the model",
        "randomly initialized, because the model has no such weights: heads.row_label.summary.pooler",
        "train: 2 of 8 sequences are truncated to 40 tokens",
        "dev: 4 of 4 questions are also in train",
    )


def test_unknown_words_are_noted_for_each_split(encoder: EvaluatedModel) -> None:
    strange = [replace(item, texts=("Ω", item.texts[1])) for item in pairs(3)]
    found = finetune_task(
        encoder, PAIR, {"train": pairs(6), "dev": [*pairs(2), *strange], "test": pairs(2)}, BASE, length=40
    )
    known = "words or characters that are not in the vocabulary: all map to the unknown token"
    assert [note for note in found.notes if "know" in note] == [f"dev: 3 of 5 examples have {known}"]


def test_a_missing_pooler_is_noted_and_a_new_task_head_is_not(
    encoder: EvaluatedModel,
) -> None:
    assert encoder.weights is not None
    pooler = {"weight": torch.zeros(16, 16), "bias": torch.zeros(16)}
    whole = {**encoder.weights, **{f"heads.pair_label.pooler.{name}": x for name, x in pooler.items()}}
    actual, without, random = (
        run(replace(encoder, weights=weights), replace(BASE, max_steps=1)).notes
        for weights in (whole, encoder.weights, None)
    )
    assert actual == random  # no note if all weights are random, because that is intended
    assert without == (
        "randomly initialized, because the model has no such weights: heads.row_label.summary.pooler",
        *actual,
    )


def test_unlabeled_questions_and_missing_classes_are_noted(
    encoder: EvaluatedModel,
) -> None:
    made = pairs(10)
    hidden = [replace(item, gold=None) for item in made[:2]]
    given = {
        "train": [*hidden, *[replace(item, gold=1) for item in made[2:8]]],
        "dev": [replace(made[8], gold=0), made[9]],
    }
    found = finetune_task(encoder, PAIR, given, Tuning(max_steps=1, batch_size=4), length=24)
    assert (
        found.losses
        == finetune_task(
            encoder, PAIR, {**given, "train": given["train"][2:]}, Tuning(max_steps=1, batch_size=4), length=24
        ).losses
    )
    assert "train: 2 of 8 questions have no answer in the file, and are ignored" in found.notes
    assert "train: no example with the label 'no', so the model cannot learn to predict it" in found.notes
    message = "1 of 2 gold answers do not occur in train, and cannot be learned: 'no' (1)"
    assert f"dev: {message}" in found.notes
