"""What a net writes for the items of a task: as it is, with examples before a question, or fine-tuned to write."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from preprocessing.errors import BadInput, with_article
from preprocessing.rng import key
from preprocessing.tokenization import Vocab
from training.evaluation.by_unit import constant, of_constant, units_of
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.evaluation.finetune_trial import (
    BestCheckpoint,
    dev_of,
    engine_of,
    of_random,
    of_repeated,
    of_unknown,
    of_workers,
    whole_state,
    with_majority,
)
from training.evaluation.prompt_formats import (
    LEAST_ROOM,
    EncoderPrompt,
    PromptDataset,
    PromptFormat,
    copies_of,
    prompt_format_of,
)
from training.finetuning import OnStep, TaskModel, Tuning, groups, ignore_activity, train_head, under_decoder
from training.generation import generate
from training.likelihood import unknown_of
from training.model import Model
from training.specs import Encoder, EngineSettings
from training.tasks import (
    GenerationSettings,
    GenerationTask,
    TaskItem,
    TaskPrompt,
    build_prompts,
    describe_unlabeled,
    ids_of,
    never_in_train,
    never_learned,
    one_answer,
    select_answered,
    select_askable,
    sign_of_metric,
)


def evaluate_generation(
    net: EvaluatedModel,
    task: GenerationTask,
    items: Mapping[str, Sequence[TaskItem]],
    tuning: Tuning | None = None,
    *,
    machine: EngineSettings | None = None,
    on_step: OnStep = ignore_activity,
) -> EvalResult:
    """What the net writes for the items of all splits but `train`, and how it scores.

    With `tuning` it is fine-tuned on `train` first, without examples in prompts; else it writes as it is, with
    `generation.num_fewshot` examples from `train` (`generation.tunes` says which of both a task wants).
    In float32, or fine-tuned in the precision of the machine with the other workers of a group; the global generator is
    as it was before.
    BadInput where the net does not write, or only once fine-tuned, or the tuning has what is not for writing, or is to
    be evaluated on a dev split that has no answers; Diverged where a loss is not finite.
    """
    task = _cut(net, task, tuning)
    machine, form = machine or EngineSettings(), prompt_format_of(net, task.generation)
    losses, notes = list[float](), list[str]()

    def step(done: int, loss: float) -> None:
        losses.append(loss)
        on_step(done, loss)

    with torch.random.fork_rng(devices=[]):
        if tuning is None:
            model = _as_it_is(net, form)
        else:
            task = _without_shots(task)
            model, notes = _tuned(net, task, form, items, tuning, machine, step)
    model.to(machine.device).eval()
    scores, predictions = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]]()
    units, alike = dict[str, Sequence[float]](), dict[str, str]()
    example = ""
    for split in (name for name in items if name != "train"):
        mine, left_out = select_askable(task, items[split], items.get("train", ()))
        questions = build_prompts(task, mine, items.get("train", ()))
        texts, said = _texts(model, form, questions, net.vocab, task.generation)
        answers = task.predictions(mine, texts)
        by_place = dict(zip(map(id, mine), answers, strict=True))
        predictions[split] = [by_place.get(id(item)) for item in items[split]]
        if any(item.gold is not None for item in mine):
            scores[split] = dict(with_majority(task, mine, answers)) | _left_out(items[split], mine)
            units[split] = units_of(task, mine, answers)
            alike[split] = constant(answers)
            notes += of_constant(split, alike[split], len(mine), task.metrics[0], scores[split])
        is_learned = tuning is not None and split in scores
        repeated = of_repeated(items["train"], mine) + never_in_train(task, items["train"], mine) if is_learned else []
        of_task = [*describe_unlabeled(mine, training=False), *task.notes(mine, answers)]
        notes += [f"{split}: {note}" for note in dict.fromkeys((*left_out, *said, *of_task, *repeated))]
        example = example or (questions[0].text if questions else "")
    return EvalResult(scores, predictions, losses, tuple(notes), example, units, alike)


def _left_out(items: Sequence[TaskItem], kept: Sequence[TaskItem]) -> dict[str, float]:
    """How many items with an answer are not scored, where some are not."""
    lost = sum(item.gold is not None for item in items) - sum(item.gold is not None for item in kept)
    return {"left_out": float(lost)} if lost else {}


def _cut(net: EvaluatedModel, task: GenerationTask, tuning: Tuning | None) -> GenerationTask:
    """The task with questions as long as the tuning allows. BadInput where that says what nets that write cannot do."""
    if tuning is None:
        return task
    for name in (
        "frozen_features",
        "lm_loss_weight",
        "input_format",
        "no_answer_loss_weight",
        "both_orders",
        "sum_orders",
        "init_task",
    ):
        if (given := getattr(tuning, name)) != getattr(Tuning(), name):
            raise BadInput(f"tuning.{name} is {given!r}, which is not for a net that learns to write: use another grid")
    if not tuning.max_seq_length:
        return task
    apart = net.spec.model.reads_source or task.generation.decoder == "random"  # the question is a row of its own
    room = tuning.max_seq_length - (0 if apart else task.generation.max_new_tokens + 1)
    if room < LEAST_ROOM:
        raise BadInput(
            f"tuning.max_seq_length is {tuning.max_seq_length}: answers of {task.generation.max_new_tokens} tokens "
            f"leave no "
            f"room for a question; "
            "use another grid"
        )
    source = min(room, task.generation.max_source_length or room)
    return replace(task, generation=replace(task.generation, max_source_length=source))  # type: ignore[type-var]


def _without_shots(task: GenerationTask) -> GenerationTask:
    """A task of a net that knows what is asked: no examples before a question."""
    return replace(task, generation=replace(task.generation, num_fewshot=0)) if task.generation.num_fewshot else task  # type: ignore[type-var]


def _as_it_is(net: EvaluatedModel, form: PromptFormat) -> Model:
    """The net as a model that writes, its weights taken over."""
    if isinstance(form, EncoderPrompt) or form.trunk.reads_source != net.spec.model.reads_source:
        raise BadInput(
            f"{with_article(net.spec.model.kind)} writes once it is fine-tuned to; give hyper-parameters and a split "
            "named train"
        )
    model = Model(form.trunk, (form.loss,), net.spec.vocab_size, seed=0)
    return _with_weights(model, net.weights) if net.weights is not None else model


def _tuned(
    net: EvaluatedModel,
    task: GenerationTask,
    form: PromptFormat,
    items: Mapping[str, Sequence[TaskItem]],
    tuning: Tuning,
    machine: EngineSettings,
    on_step: OnStep,
) -> tuple[Model, list[str]]:
    """The net fine-tuned to write, as a model, and what is to be said of its training."""
    questions, answers, notes = _pairs(net.vocab, task, form, items["train"])
    notes += [f"train: {note}" for note in never_learned(task, items["train"])]
    copies, spread = copies_of(form, len(questions), tuning)
    examples = PromptDataset(form, list(zip(questions, answers, strict=True)), copies, tuning.seed)
    steps, dev = spread.num_steps(len(examples)), dev_of(items)
    known = [item for item in items.get(dev, ()) if item.gold is not None]
    made = Model(form.trunk, (form.loss,), net.spec.vocab_size, seed=0)

    def score(model: TaskModel) -> float:
        _with_weights(made.to(machine.device).eval(), dict(model.named_parameters()))
        texts, _ = _texts(made, form, build_prompts(task, known, ()), net.vocab, task.generation)
        return sign_of_metric(task.metrics[0]) * task.scores(known, task.predictions(known, texts))[task.metrics[0]]

    best = BestCheckpoint.at(tuning, steps, dev, machine, score)

    def step(done: int, loss: float) -> None:
        on_step(done, loss)
        if best:
            best.evaluate(done, model)

    model = TaskModel(tuning.trunk(form.trunk), (form.target,), net.spec.vocab_size, tuning.seed)
    random = [] if net.weights is None else model.take_over(_fitting(net, form, model))
    engine = engine_of(model, spread.optim(steps), machine, groups(model, spread))
    train_head(engine, examples, spread, _micro_tokens(form, questions, answers, machine), step)
    weights = best.take(model) if best else whole_state(engine)
    return _with_weights(made, weights), [
        *of_random(random),
        *of_workers(engine.data_world),
        *notes,
        *([best.said()] if best else []),
    ]


def _pairs(
    vocab: Vocab, task: GenerationTask, form: PromptFormat, train: Sequence[TaskItem]
) -> tuple[list[list[int]], list[list[int]], list[str]]:
    """Questions and answers to learn from, as ids, and notes of what had to be left out of them."""
    used, unlabelled = select_answered(train, training=True)
    train = [train[number] for number in used]
    questions, cuts = _apart([ids_of(each, vocab.encode, form.room) for each in build_prompts(task, train, ())])
    texts = [task.target(item) for item in train]
    answers, short = _apart([form.answer_ids(text) for text in texts])
    unknown = [unknown_of(vocab, [*read, *wrote]) for read, wrote in zip(questions, answers, strict=True)]
    notes, count = (
        [*unlabelled, *_of_cuts(cuts), *of_unknown(unknown, "examples"), *one_answer(texts)],
        sum(map(bool, short)),
    )
    if count:
        notes.append(
            f"{count:,} of {len(short):,} answers are longer than {task.generation.max_new_tokens} tokens "
            f"(max_new_tokens): "
            f"cut"
        )
    return questions, answers, [f"train: {note}" for note in notes]


def _apart(found: Sequence[tuple[list[int], str]]) -> tuple[list[list[int]], list[str]]:
    """The ids of texts, and what had to be left out of each."""
    return [ids for ids, _ in found], [cut for _, cut in found]


def _of_cuts(cuts: Sequence[str]) -> list[str]:
    """Notes of what had to be left out of questions."""
    counts = Counter(cut for cut in cuts if cut)
    return [
        f"{count:,} of {len(cuts):,} questions are longer than there is room: {cut}" for cut, count in counts.items()
    ]


def _micro_tokens(
    form: PromptFormat, questions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], machine: EngineSettings
) -> int:
    """Tokens of a micro-batch, of which those of a decoder are counted: fewer where an encoder reads more beside."""
    if not form.trunk.reads_source:
        return machine.micro_batch_tokens
    read, wrote = sum(map(len, questions)), sum(map(len, answers))
    return max(1, machine.micro_batch_tokens * wrote // max(1, read + wrote))


def _fitting(net: EvaluatedModel, form: PromptFormat, model: TaskModel) -> Mapping[str, torch.Tensor]:
    """The weights of a net by the names that they have in the model; a decoder on top of it begins with random ones."""
    assert net.weights is not None
    trunk = net.spec.model
    if not isinstance(trunk, Encoder) or not form.trunk.reads_source:
        return net.weights
    random = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    return random | under_decoder(net.weights, trunk)


def _with_weights(model: Model, weights: Mapping[str, torch.Tensor]) -> Model:
    """The model with those of the weights that it has; BadInput where one of its own is lacking."""
    wanted = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in wanted.items():
            if name in weights:
                tensor.copy_(weights[name])
            else:
                raise BadInput(f"the weights have no {name}; give those of a net with the heads of its pretraining")
    return model


def _texts(
    model: Model, form: PromptFormat, questions: Sequence[TaskPrompt], vocab: Vocab, how: GenerationSettings
) -> tuple[list[str], list[str]]:
    """What the model writes for each question, and what of the questions it could not read.

    Questions of like length are side by side.
    """
    ids, cuts = _apart([ids_of(question, vocab.encode, form.room) for question in questions])
    order = sorted(range(len(ids)), key=lambda number: -len(ids[number]))
    ends, barred = stops(vocab, how.until), _barred(vocab, model.spec.vocab_size)
    rows = generate(
        model,
        [form.prompt(ids[number]) for number in order],
        how.limits(ends, barred),
        method=how.method(),
        key=key(how.seed, "task"),
        blank=form.blank,
    )
    unspoken, texts = set(vocab.special_ids), [""] * len(ids)
    for number, row in zip(order, rows, strict=True):
        texts[number] = vocab.decode(id for id in row.ids.tolist() if id not in unspoken)
    return texts, [*_of_cuts(cuts), *of_unknown([unknown_of(vocab, each) for each in ids], "questions")]


def stops(vocab: Vocab, until: str) -> list[int]:
    """The tokens that end an answer: that of a text, and those with what ends an answer, where this is one sign."""
    ends = [] if vocab.sep is None else [vocab.sep]
    if len(until) == 1:
        special = set(vocab.special_ids)
        ends += [id for id in range(vocab.size) if id not in special and until in vocab.decode([id])]
    return ends


def _barred(vocab: Vocab, rows: int) -> list[int]:
    """Tokens that are never written: special ones but the end of a text, and rows of the table without a piece."""
    ends = set() if vocab.sep is None else {vocab.sep}
    return sorted({*vocab.special_ids, *range(vocab.size, rows)} - ends)
