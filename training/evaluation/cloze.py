"""Fill in blanks of held-out sentences, without fine-tuning."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from preprocessing.collate import collate_unpadded
from preprocessing.errors import BadInput
from preprocessing.schema import IGNORE, Ints, Row
from preprocessing.tokenization import SPACE_SIGN, Vocab, display_piece
from training.engines import to_tensors
from training.evaluation.by_unit import constant, of_constant
from training.evaluation.eval_result import EvalResult, EvaluatedModel
from training.evaluation.likelihoods import model_of, which_of
from training.evaluation.tasks import ClozeItem, ClozeItems
from training.losses import LogitsFor
from training.losses.heads import TokenHead, tokens_at
from training.model import Model
from training.specs import EngineSettings

BATCH: Final = 64
SHOWN: Final = 3  # sentences in the example
BEST: Final = 5  # most likely words per blank
_SMOOTH: Final = (
    "bits_per_byte: -log2 p of the original word per byte; margin: its log p minus that of the best other word, in nats"
)


def fill_in(net: EvaluatedModel, task: ClozeItems, machine: EngineSettings | None = None) -> EvalResult:
    """Score the filled-in blanks: `accuracy`, `top5`, `majority`, `bits_per_byte` and `margin`.

    `accuracy` is the fraction of blanks where the most likely word is the original one. `top5` is the fraction where
    the original word is among the five most likely. `majority` is the accuracy of the most frequent answer.
    `bits_per_byte` and `margin` are those of likelihood tasks; all other words are wrong choices.

    If the weights are None, the model is randomly initialized with seed 0. For a generator and discriminator, the
    generator is used. Raises BadInput if the model predicts neither masked nor next tokens.
    """
    model = model_of(net, seed=0, machine=machine or EngineSettings())
    found = [_score_batch(log_p_BV, answer_B) for log_p_BV, answer_B in _batches(model, net.vocab, task.blanks)]
    best_NB, right_log_p_N, wrong_log_p_N = (torch.cat(each) for each in zip(*found, strict=True))
    answer_N = torch.tensor([blank.answer for blank in task.blanks])
    right_NB = best_NB == answer_N[:, None]
    golds = [_word(net.vocab, blank.answer) for blank in task.blanks]
    bits_N = -right_log_p_N / math.log(2) / torch.tensor([max(1, len(word.encode())) for word in golds])
    margin_N = right_log_p_N - wrong_log_p_N
    scores = {"accuracy": _mean(right_NB[:, 0]), "top5": _mean(right_NB.any(1)), "majority": task.majority}
    scores |= {"bits_per_byte": _mean(bits_N), "margin": _mean(margin_N)}
    step = max(1, len(task.blanks) // SHOWN)
    shown = [_format_blank(net.vocab, task.blanks[n], best_NB[n]) for n in range(0, len(task.blanks), step)][:SHOWN]
    notes, example = (*which_of(net), *task.notes, _SMOOTH), "\n".join(shown)
    words = [net.vocab.decode([id]).strip() for id in best_NB[:, 0].tolist()]
    constants, units = {"test": constant(words)}, {"test": right_NB[:, 0].float().tolist()}
    notes += tuple(of_constant("test", constants["test"], len(words), "accuracy", scores))
    predictions = [
        {"answer": _word(net.vocab, best[0]), "choices": [_word(net.vocab, id) for id in best], "correct": bool(right)}
        for best, right in zip(best_NB.tolist(), right_NB[:, 0].tolist(), strict=True)
    ]
    for prediction, bits, margin in zip(predictions, bits_N.tolist(), margin_N.tolist(), strict=True):
        prediction |= {"bits_per_byte": bits, "margin": margin}
    questions = [
        {"place": f"blank {n}", "texts": [" ___ ".join(_around(net.vocab, blank))], "gold": gold}
        for n, (blank, gold) in enumerate(zip(task.blanks, golds, strict=True), 1)
    ]
    return EvalResult(
        {"test": scores},
        {"test": predictions},
        notes=notes,
        example=example,
        by_unit=units,
        constant=constants,
        questions={"test": questions},
    )


def _batches(model: Model, vocab: Vocab, blanks: Sequence[ClozeItem]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the log-probabilities float32 [B, V] and the answers int64 [B] of each batch of blanks."""
    starts = range(0, len(blanks), BATCH)
    for start, log_p_BV in zip(starts, log_ps_of_blanks(model, vocab, blanks), strict=True):
        yield log_p_BV, torch.tensor([blank.answer for blank in blanks[start : start + BATCH]])


def _score_batch(log_p_BV: Tensor, answer_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The most likely tokens int64 [B, 5], the log-probability of the answer [B], and that of the best other token."""
    right_B = log_p_BV.gather(1, answer_B[:, None])[:, 0]
    wrong_B = log_p_BV.scatter(1, answer_B[:, None], -torch.inf).amax(1)
    return log_p_BV.topk(BEST).indices, right_B, wrong_B


def log_ps_of_blanks(model: Model, vocab: Vocab, blanks: Sequence[ClozeItem]) -> Iterator[Tensor]:
    """Yield the log-probabilities float32 [B, V] of each batch of blanks; those of special tokens are -inf.

    A model that predicts the next token reads only the text before the blank. Raises BadInput if the model predicts
    neither masked nor next tokens.
    """
    for logits_BV in _logits(model, vocab, blanks):
        yield logits_BV.float().log_softmax(-1).cpu()


@torch.no_grad()
def _logits(model: Model, vocab: Vocab, blanks: Sequence[ClozeItem]) -> Iterator[Tensor]:
    """Yield the logits [B, V] of each batch of blanks; those of special tokens are -inf."""
    found, table = _word_head(model, vocab), model.trunk.table
    if found is None:
        kind = model.spec.model.kind
        raise BadInput(f"task cloze: this {kind} cannot predict a single word; remove cloze from eval_tasks")
    masks, head = found[0] == "masked", found[1]
    assert isinstance(table, Tensor)
    for start in range(0, len(blanks), BATCH):
        some = blanks[start : start + BATCH]
        rows = [_mask_blank(vocab, one) if masks else _prefix(vocab, one) for one in some]
        batch = to_tensors(collate_unpadded(rows), table.device)
        hidden_BD = tokens_at(model.trunk(batch), batch["targets_at"]) if masks else model.trunk.next_states(batch)
        logits_BV = head.next_scores(hidden_BD, table)
        logits_BV[:, list(vocab.special_ids)] = -torch.inf
        yield logits_BV[:, : vocab.size]


def has_word_head(model: Model, vocab: Vocab) -> bool:
    """Whether a model predicts single tokens: masked tokens, or the next token."""
    return _word_head(model, vocab) is not None


def _word_head(model: Model, vocab: Vocab) -> tuple[LogitsFor, TokenHead] | None:
    """The head that predicts single tokens, and which ones; None if the model has none."""
    trunk = model.spec.model
    if len(trunk.nets) > 1 or trunk.reads_source or trunk.mem_len or not isinstance(model.trunk.table, Tensor):
        return None
    masked, causal = model.head_for("masked"), model.head_for("causal")
    if isinstance(masked, TokenHead):
        return ("masked", masked) if vocab.mask is not None else None
    return ("causal", causal) if isinstance(causal, TokenHead) and trunk.attention_mask == "causal" else None


def _mask_blank(vocab: Vocab, blank: ClozeItem) -> Row:
    """The sentence as a sequence, with [MASK] in place of the blank."""
    first, last, _ = vocab.around
    ids_S = np.array([*first, *blank.ids_S, *last], np.int32)
    labels_S = np.full(len(ids_S), IGNORE, np.int32)
    at = blank.at + len(first)
    assert vocab.mask is not None
    ids_S[at], labels_S[at] = vocab.mask, blank.answer
    return _row(ids_S, labels_S)


def _prefix(vocab: Vocab, blank: ClozeItem) -> Row:
    """The text before the blank, as the start of a document."""
    first = [] if vocab.sep is None else [vocab.sep]
    ids_S = np.array([*first, *blank.ids_S[: blank.at]], np.int32)
    return _row(ids_S, np.full(len(ids_S), IGNORE, np.int32))


def _row(ids_S: Ints, labels_S: Ints) -> Row:
    return {"input_ids": ids_S, "token_type_ids": np.zeros(len(ids_S), np.int8), "labels": labels_S}


def _format_blank(vocab: Vocab, blank: ClozeItem, best_B: Tensor) -> str:
    """A sentence as text: the blank, the three most likely words, and the original word."""
    before, behind = _around(vocab, blank)
    words, answer = [_word(vocab, int(id)) for id in best_B[:3]], _word(vocab, blank.answer)
    return f"{before} ___ {behind}  -> {', '.join(words)}  (it was: {answer})"


def _around(vocab: Vocab, blank: ClozeItem) -> tuple[str, str]:
    """The texts before and after the blank."""
    return vocab.decode(blank.ids_S[: blank.at]).strip(), vocab.decode(blank.ids_S[blank.at + 1 :]).strip()


def _word(vocab: Vocab, id: int) -> str:
    """A token as a word; a token that is only a space is shown by the space sign."""
    return display_piece(vocab, id).removeprefix(SPACE_SIGN) or SPACE_SIGN


def _mean(right_N: Tensor) -> float:
    return float(right_N.float().mean())
