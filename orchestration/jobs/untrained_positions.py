"""Which positions of a net a task reads that its pretraining never had: they are as they began, and so are scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import Any, Final, cast

from orchestration.jobs.eval_request import EvalTarget
from preprocessing.tokenization import Vocab
from training.finetuning import Tuning
from training.likelihood import MOST_WINDOW, LogP, Perplexity, PerplexityText, PseudoKind, Request, Windowing
from training.tasks import GenerationTask, ScoredTask, TaskFile, TaskItem, build_prompts

_LONGEST: Final = 3  # items whose tokens are counted: those with the most characters


def with_trained_window(subject: EvalTarget, task: TaskFile) -> tuple[TaskFile, str]:
    """A perplexity that leaves its window to the net with as many tokens as were trained, and a line that says so."""
    row = subject.longest_row
    if task.task.way != "scored" or not 0 < row < MOST_WINDOW:
        return task, ""
    kind: Any = cast(ScoredTask, task.task).within(row)
    if kind == task.task:
        return task, ""
    said = f"windows have {row} tokens, as the longest row of its pretraining: later positions are untrained"
    return replace(task, task=kind), said


def find_untrained_positions(
    subject: EvalTarget,
    task: TaskFile,
    length: int,
    tunings: Sequence[Tuning | None],
    items: Mapping[str, Sequence[TaskItem]],
) -> str:
    """A line where a task reads more tokens than the rows of the pretraining had, "" where it does not. `length`: of
    the rows of a fine-tuning, where that does not say another."""
    row = subject.longest_row
    if not row or subject.corpus is None:
        return ""
    reads, begin = "its rows have up to {} tokens", "are untrained"
    if task.task.way == "tuned":
        most = max(tuning.max_seq_length or length for tuning in tunings if tuning)
        begin, remedy = "begin untrained", f"--max-seq-length {row} cuts the rows"
    elif task.task.way == "scored":
        reader = _Measuring(Vocab.load(subject.corpus / "vocab"))
        cast(ScoredTask, task.task).answers(_longest(items), items.get("train", ()), reader)
        most = max(reader.row, reader.window)
        remedy = "a net that is trained on longer rows reads them"
        if reader.window:
            reads, remedy = "its windows have {} tokens", f"a task file of your own gives windows of {row} (window)"
    else:
        kind = cast(GenerationTask, task.task)
        most = _written(kind, items, Vocab.load(subject.corpus / "vocab"))
        reads = "questions and answers have up to {} tokens"
        room = row - kind.generation.max_new_tokens
        remedy = "a task file of your own cuts them (max_new_tokens of `generation`"
        remedy += f", max_source_length: {room})" if room > 0 else ", max_source_length)"
    if most <= row:
        return ""
    return (
        f"task {task.name}: {reads.format(f'{most:,}')}, those of the pretraining had {row}: later positions {begin}; "
        f"{remedy}"
    )


def _longest(items: Mapping[str, Sequence[TaskItem]]) -> list[TaskItem]:
    """The items that are likely to have the most tokens, of all splits but `train`."""
    others = [item for split, found in items.items() if split != "train" for item in found]
    return nlargest(_LONGEST, others, key=lambda item: len(str(item.texts)))


def _written(task: GenerationTask, items: Mapping[str, Sequence[TaskItem]], vocab: Vocab) -> int:
    """Tokens of the longest question, with examples before it, and of the longest answer behind it."""
    shots = items.get("train", ()) if task.generation.num_fewshot else ()
    questions = build_prompts(task, _longest(items), shots)
    longest = max((len(vocab.encode(question.text)) for question in questions), default=0)
    return min(longest, task.generation.max_source_length or longest) + task.generation.max_new_tokens


class _Measuring:
    """A reader that knows nothing of texts but their length in tokens: the longest that it was asked about."""

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

    def shown(self, request: Request) -> str:
        return request.context + request.continuation
