"""Detects tasks that read positions that the pretraining did not train. Such positions have their initial values, which
lowers scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import Any, Final, cast

from orchestration.evaluation.eval_request import EvalTarget
from preprocessing.tokenization import Vocab
from training.evaluation.likelihood import MOST_WINDOW, LogP, Perplexity, PerplexityText, PseudoKind, Request, Windowing
from training.evaluation.tasks import GenerationTask, ScoredTask, TaskFile, TaskItem, build_prompts
from training.finetuning import Tuning

_LONGEST: Final = 3  # items whose tokens are counted: those with the most characters


def with_trained_window(target: EvalTarget, task: TaskFile) -> tuple[TaskFile, str]:
    """The task and a note. A perplexity task without its own window gets a window of the trained length; any other task
    stays unchanged, and the note is ""."""
    row = target.longest_row
    if task.task.way != "scored" or not 0 < row < MOST_WINDOW:
        return task, ""
    kind: Any = cast(ScoredTask, task.task).within(row)
    if kind == task.task:
        return task, ""
    note = f"windows have {row} tokens, like the longest sequence of the pretraining: later positions are untrained"
    return replace(task, task=kind), note


def find_untrained_positions(
    target: EvalTarget,
    task: TaskFile,
    length: int,
    tunings: Sequence[Tuning | None],
    items: Mapping[str, Sequence[TaskItem]],
) -> str:
    """A warning if a task reads more tokens than the pretraining did; "" otherwise.

    `length`: maximum sequence length of fine-tuning, unless the hyperparameters set another.
    """
    row = target.longest_row
    if not row or target.corpus is None:
        return ""
    reads, begin = "its sequences have up to {} tokens", "are untrained"
    if task.task.way == "tuned":
        most = max(tuning.max_seq_length or length for tuning in tunings if tuning)
        begin, remedy = "start untrained", f"truncate the sequences with --max-seq-length {row}"
    elif task.task.way == "scored":
        reader = _TokenCounter(Vocab.load(target.corpus / "vocab"))
        cast(ScoredTask, task.task).answers(_longest_items(items), items.get("train", ()), reader)
        most = max(reader.row, reader.window)
        remedy = "use a model that was trained on longer sequences"
        if reader.window:
            reads, remedy = "its windows have {} tokens", f"set window to {row} in your own task file"
    else:
        kind = cast(GenerationTask, task.task)
        most = _longest_generation(kind, items, Vocab.load(target.corpus / "vocab"))
        reads = "questions and answers have up to {} tokens"
        room = row - kind.generation.max_new_tokens
        remedy = "truncate them in your own task file (max_new_tokens of `generation`"
        remedy += f", max_source_length: {room})" if room > 0 else ", max_source_length)"
    if most <= row:
        return ""
    return (
        f"task {task.name}: {reads.format(f'{most:,}')}, but the sequences of the pretraining had {row}: later "
        f"positions {begin}; {remedy}"
    )


def _longest_items(items: Mapping[str, Sequence[TaskItem]]) -> list[TaskItem]:
    """The items that probably have the most tokens, of all splits except `train`."""
    others = [item for split, split_items in items.items() if split != "train" for item in split_items]
    return nlargest(_LONGEST, others, key=lambda item: len(str(item.texts)))


def _longest_generation(task: GenerationTask, items: Mapping[str, Sequence[TaskItem]], vocab: Vocab) -> int:
    """Tokens of the longest question with its few-shot examples, plus the maximum tokens of its answer."""
    shots = items.get("train", ()) if task.generation.num_fewshot else ()
    questions = build_prompts(task, _longest_items(items), shots)
    longest = max((len(vocab.encode(question.text)) for question in questions), default=0)
    return min(longest, task.generation.max_source_length or longest) + task.generation.max_new_tokens


class _TokenCounter:
    """A reader that only counts tokens: it records the longest request."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab, self.row, self.window = vocab, 0, 0

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind) -> list[LogP]:
        lengths = [len(self.vocab.encode(request.context + request.continuation)) for request in requests]
        self.row = max([self.row, *lengths])
        return [LogP(0.0, length, greedy=False) for length in lengths]

    def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
        self.window = max(self.window, windowing.window or MOST_WINDOW)
        return [Perplexity(0.0, 1, 1, 1, self.window, windowing.stride or self.window) for _ in texts]

    def describe(self, pseudo: PseudoKind) -> str:
        return ""

    def format_request(self, request: Request) -> str:
        return request.context + request.continuation
