"""Evaluate a model on generation tasks: zero-shot, few-shot, or fine-tuned to generate."""

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
    engine_of,
    of_random,
    of_workers,
    whole_state,
)
from training.evaluation.generation import generate
from training.evaluation.likelihood import unknown_of
from training.evaluation.prompt_formats import (
    LEAST_ROOM,
    EncoderPrompt,
    PromptDataset,
    PromptFormat,
    copies_of,
    prompt_format_of,
)
from training.evaluation.scoring import dev_of, of_repeated, of_unknown, with_majority
from training.evaluation.tasks import (
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
from training.finetuning import OnStep, TaskModel, Tuning, groups, ignore_activity, never, train_head, under_decoder
from training.model import Model
from training.specs import Encoder, EngineSettings


def evaluate_generation(
    net: EvaluatedModel,
    task: GenerationTask,
    items: Mapping[str, Sequence[TaskItem]],
    tuning: Tuning | None = None,
    *,
    machine: EngineSettings | None = None,
    on_step: OnStep = ignore_activity,
) -> EvalResult:
    """Generate texts for the items of all splits except `train`; return the predictions and their scores.

    With `tuning`, first fine-tune on `train`; the prompts then have no few-shot examples. Without it, generate with the
    given weights and `generation.num_fewshot` examples from `train`. A task is fine-tuned if `generation.tunes` is true
    and the split `train` exists.

    Generation runs in float32. Fine-tuning runs in the precision of the engine, together with the other workers of a
    group. The global random generator is restored afterwards.

    Raises BadInput if the model cannot generate, or only after fine-tuning. Raises BadInput also if the tuning sets a
    key that generation does not support, or evaluates on a dev split without answers. Raises Diverged if a loss is not
    finite.
    """
    task = _with_max_source_length(net, task, tuning)
    machine, form = machine or EngineSettings(), prompt_format_of(net, task.generation)
    losses, notes = list[float](), list[str]()

    def step(done: int, loss: float) -> None:
        losses.append(loss)
        on_step(done, loss)

    with torch.random.fork_rng(devices=[]):
        if tuning is None:
            model = _with_pretrained_weights(net, form)
        else:
            task = _without_shots(task)
            model, notes = _finetune(net, task, form, items, tuning, machine, step)
    model.to(machine.device).eval()
    scores, predictions = dict[str, Mapping[str, float]](), dict[str, Sequence[Any]]()
    units, constants = dict[str, Sequence[float]](), dict[str, str]()
    example = ""
    for split in (name for name in items if name != "train"):
        scored, left_out = select_askable(task, items[split], items.get("train", ()))
        questions = build_prompts(task, scored, items.get("train", ()))
        texts, text_notes = _texts(model, form, questions, net.vocab, task.generation)
        answers = task.predictions(scored, texts)
        by_place = dict(zip(map(id, scored), answers, strict=True))
        predictions[split] = [by_place.get(id(item)) for item in items[split]]
        if any(item.gold is not None for item in scored):
            scores[split] = dict(with_majority(task, scored, answers)) | _count_left_out(items[split], scored)
            units[split] = units_of(task, scored, answers)
            constants[split] = constant(answers)
            notes += of_constant(split, constants[split], len(scored), task.metrics[0], scores[split])
        is_learned = tuning is not None and split in scores
        repeated = (
            of_repeated(items["train"], scored) + never_in_train(task, items["train"], scored) if is_learned else []
        )
        of_task = [*describe_unlabeled(scored, training=False), *task.notes(scored, answers)]
        notes += [f"{split}: {note}" for note in dict.fromkeys((*left_out, *text_notes, *of_task, *repeated))]
        example = example or (questions[0].text if questions else "")
    return EvalResult(scores, predictions, losses, tuple(notes), example, units, constants)


def _count_left_out(items: Sequence[TaskItem], kept: Sequence[TaskItem]) -> dict[str, float]:
    """The number of items that have an answer but are not scored, as `left_out`; empty if it is 0."""
    lost = sum(item.gold is not None for item in items) - sum(item.gold is not None for item in kept)
    return {"left_out": float(lost)} if lost else {}


def _with_max_source_length(net: EvaluatedModel, task: GenerationTask, tuning: Tuning | None) -> GenerationTask:
    """Return the task with questions at most as long as the tuning allows.

    Raises BadInput if the tuning sets a key that generation does not support.
    """
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
        if (value := getattr(tuning, name)) != getattr(Tuning(), name):
            expected = f"expected {getattr(Tuning(), name)!r} for a generation task"
            raise BadInput(f"invalid tuning.{name}: got {value!r}, {expected}; use another grid")
    if not tuning.max_seq_length:
        return task
    apart = net.spec.model.reads_source or task.generation.decoder == "random"  # the encoder reads the question
    room = tuning.max_seq_length - (0 if apart else task.generation.max_new_tokens + 1)
    if room < LEAST_ROOM:
        raise BadInput(
            f"invalid tuning.max_seq_length: got {tuning.max_seq_length}, which leaves no room for a question beside "
            f"an answer of {task.generation.max_new_tokens} tokens (max_new_tokens); use another grid"
        )
    source = min(room, task.generation.max_source_length or room)
    return replace(task, generation=replace(task.generation, max_source_length=source))  # type: ignore[type-var]


def _without_shots(task: GenerationTask) -> GenerationTask:
    """Return the task without few-shot examples, for a model that was fine-tuned on it."""
    return replace(task, generation=replace(task.generation, num_fewshot=0)) if task.generation.num_fewshot else task  # type: ignore[type-var]


def _with_pretrained_weights(net: EvaluatedModel, form: PromptFormat) -> Model:
    """Return a model that generates, with the weights of `net`. Raises BadInput if it must be fine-tuned first."""
    if isinstance(form, EncoderPrompt) or form.trunk.reads_source != net.spec.model.reads_source:
        raise BadInput(
            f"{with_article(net.spec.model.kind)} generates text only after fine-tuning; give hyperparameters and a "
            "split named train"
        )
    model = Model(form.trunk, (form.loss,), net.spec.vocab_size, seed=0)
    return _with_weights(model, net.weights) if net.weights is not None else model


def _finetune(
    net: EvaluatedModel,
    task: GenerationTask,
    form: PromptFormat,
    items: Mapping[str, Sequence[TaskItem]],
    tuning: Tuning,
    machine: EngineSettings,
    on_step: OnStep,
) -> tuple[Model, list[str]]:
    """Fine-tune the model to generate; return it and the notes on its training."""
    questions, answers, notes = _pairs(net.vocab, task, form, items["train"])
    notes += [f"train: {note}" for note in never_learned(task, items["train"])]
    copies, spread = copies_of(form, len(questions), tuning)
    examples = PromptDataset(form, list(zip(questions, answers, strict=True)), copies, tuning.seed)
    steps, dev = spread.num_steps(len(examples)), dev_of(items)
    known = [item for item in items.get(dev, ()) if item.gold is not None]
    generator = Model(form.trunk, (form.loss,), net.spec.vocab_size, seed=0)

    def score(model: TaskModel) -> float:
        _with_weights(generator.to(machine.device).eval(), dict(model.named_parameters()))
        texts, _ = _texts(generator, form, build_prompts(task, known, ()), net.vocab, task.generation)
        return sign_of_metric(task.metrics[0]) * task.scores(known, task.predictions(known, texts))[task.metrics[0]]

    best = BestCheckpoint.at(tuning, steps, dev, machine, score)

    def step(done: int, loss: float) -> None:
        on_step(done, loss)
        if best:
            best.evaluate(done, model)

    model = TaskModel(tuning.trunk(form.trunk), (form.target,), net.spec.vocab_size, tuning.seed)
    random = [] if net.weights is None else model.take_over(_fit_weights(net, form, model))
    engine = engine_of(model, spread.optim(steps), machine, groups(model, spread))
    tokens = _micro_tokens(form, questions, answers, machine)
    train_head(engine, examples, spread, tokens, step, best.is_over if best else never)
    weights = best.take(model) if best else whole_state(engine)
    return _with_weights(generator, weights), [
        *of_random(random),
        *of_workers(engine.data_world),
        *notes,
        *([best.note()] if best else []),
    ]


def _pairs(
    vocab: Vocab, task: GenerationTask, form: PromptFormat, train: Sequence[TaskItem]
) -> tuple[list[list[int]], list[list[int]], list[str]]:
    """Token IDs of the training questions and answers, and notes on what was left out or truncated."""
    used, unlabelled = select_answered(train, training=True)
    train = [train[number] for number in used]
    questions, cuts = _split_pairs([ids_of(each, vocab.encode, form.room) for each in build_prompts(task, train, ())])
    texts = [task.target(item) for item in train]
    answers, short = _split_pairs([form.answer_ids(text) for text in texts])
    unknown = [unknown_of(vocab, [*read, *wrote]) for read, wrote in zip(questions, answers, strict=True)]
    notes, count = (
        [*unlabelled, *_of_cuts(cuts), *of_unknown(unknown, "examples"), *one_answer(texts)],
        sum(map(bool, short)),
    )
    if count:
        notes.append(
            f"{count:,} of {len(short):,} answers are truncated to {task.generation.max_new_tokens} tokens "
            "(max_new_tokens)"
        )
    return questions, answers, [f"train: {note}" for note in notes]


def _split_pairs(pairs: Sequence[tuple[list[int], str]]) -> tuple[list[list[int]], list[str]]:
    """Return the token IDs of all texts, and for each text a description of what was left out."""
    return [ids for ids, _ in pairs], [cut for _, cut in pairs]


def _of_cuts(cuts: Sequence[str]) -> list[str]:
    """Notes on the questions that were too long: how many, and what was left out."""
    counts = Counter(cut for cut in cuts if cut)
    return [f"{count:,} of {len(cuts):,} questions do not fit the model: {cut}" for cut, count in counts.items()]


def _micro_tokens(
    form: PromptFormat, questions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], machine: EngineSettings
) -> int:
    """Tokens per micro-batch. The training loop counts decoder tokens only, so the number is scaled down to leave
    room for the encoder's tokens."""
    if not form.trunk.reads_source:
        return machine.micro_tokens
    read, wrote = sum(map(len, questions)), sum(map(len, answers))
    return max(1, machine.micro_tokens * wrote // max(1, read + wrote))


def _fit_weights(net: EvaluatedModel, form: PromptFormat, model: TaskModel) -> Mapping[str, torch.Tensor]:
    """Map the weights of `net` to the parameter names of `model`. A decoder added on top of an encoder keeps its
    random initial weights."""
    assert net.weights is not None
    trunk = net.spec.model
    if not isinstance(trunk, Encoder) or not form.trunk.reads_source:
        return net.weights
    random = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    return random | under_decoder(net.weights, trunk)


def _with_weights(model: Model, weights: Mapping[str, torch.Tensor]) -> Model:
    """Copy `weights` into the model and return it; extra weights are ignored. Raises BadInput if one is missing."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in parameters.items():
            if name in weights:
                tensor.copy_(weights[name])
            else:
                raise BadInput(f"missing weight {name}; give a model that still has its pretraining heads")
    return model


def _texts(
    model: Model, form: PromptFormat, questions: Sequence[TaskPrompt], vocab: Vocab, how: GenerationSettings
) -> tuple[list[str], list[str]]:
    """The generated text for each question, and notes on questions that were truncated or have unknown tokens.

    Questions are sorted by length, so that questions in a batch have similar lengths.
    """
    ids, cuts = _split_pairs([ids_of(question, vocab.encode, form.room) for question in questions])
    order = sorted(range(len(ids)), key=lambda number: -len(ids[number]))
    ends, barred = stops(vocab, how.until), _list_barred(vocab, model.spec.vocab_size)
    rows = generate(
        model,
        [form.prompt(ids[number]) for number in order],
        how.limits(ends, barred),
        method=how.method(),
        key=key(how.seed, "task"),
        blank=form.blank,
    )
    special, texts = set(vocab.special_ids), [""] * len(ids)
    for number, row in zip(order, rows, strict=True):
        texts[number] = vocab.decode(id for id in row.ids.tolist() if id not in special)
    return texts, [*_of_cuts(cuts), *of_unknown([unknown_of(vocab, each) for each in ids], "questions")]


def stops(vocab: Vocab, until: str) -> list[int]:
    """The IDs of tokens that end an answer: the end-of-text token, and tokens that contain `until` if it is a single
    character."""
    ends = [] if vocab.sep is None else [vocab.sep]
    if len(until) == 1:
        special = set(vocab.special_ids)
        ends += [id for id in range(vocab.size) if id not in special and until in vocab.decode([id])]
    return ends


def _list_barred(vocab: Vocab, rows: int) -> list[int]:
    """The IDs of tokens that are never generated: special tokens except end-of-text, and unused rows of the
    embedding table."""
    ends = set() if vocab.sep is None else {vocab.sep}
    return sorted({*vocab.special_ids, *range(vocab.size, rows)} - ends)
