"""The most probable tokens at a blank of a text, or after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from preprocessing.errors import BadInput
from preprocessing.tokenization import SPACE_SIGN, Vocab, token_texts
from training.evaluation import has_word_head, log_ps_of_blanks, model_of, net_of
from training.evaluation.tasks import ClozeItem
from training.specs import EngineSettings

BLANK: Final = "___"  # marks the predicted token; the mask token as text, such as [MASK], does the same


@dataclass(frozen=True)
class TokenPrediction:
    """The most probable tokens of a text with their probabilities, the most probable first.

    A token is its exact text, so that " cat" begins a word, and "cat" continues one.
    """

    text: str
    tokens: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        """
        >>> print(TokenPrediction("the ___ sat", ((" cat", 0.5), ("s", 0.254))))
        the ___ sat -> ·cat 50.0 %, s 25.4 %
        """
        shown = [f"{token.replace(' ', SPACE_SIGN)} {100 * p:.1f} %" for token, p in self.tokens]
        return f"{self.text} -> {', '.join(shown)}"


def predict_tokens(folder: Path, texts: Sequence[str], top_k: int = 5) -> list[TokenPrediction]:
    """The `top_k` most probable tokens of each text, at its blank; without a blank, after the text.

    A model that predicts the next token reads the text before the blank only. Special tokens are never predicted; the
    probabilities of all other tokens sum to 1. Raises BadInput if the run of `folder` is not finished, if the model
    predicts neither masked nor next tokens, or if a masked language model gets a text without a blank.
    """
    if top_k < 1:
        raise BadInput(f"invalid top_k: got {top_k}, expected an integer of at least 1; raise it")
    net = net_of(folder)
    model = model_of(net, seed=0, machine=EngineSettings())
    if not has_word_head(model, net.vocab):
        kind = model.spec.model.kind
        raise BadInput(f"predict: this {kind} cannot predict a single word; use a model with masked or next tokens")
    is_causal = model.spec.model.attention_mask == "causal"
    blanks = [_blank_of(text, net.vocab, is_causal, model.spec.model.longest) for text in texts]
    predictions = list[TokenPrediction]()
    for log_p_BV in log_ps_of_blanks(model, net.vocab, blanks):
        best = log_p_BV.topk(min(top_k, net.vocab.size))
        for ps, ids in zip(best.values.exp().tolist(), best.indices.tolist(), strict=True):
            tokens = [token_texts(net.vocab, [id])[0] for id in ids]
            predictions.append(TokenPrediction(texts[len(predictions)], tuple(zip(tokens, ps, strict=True))))
    return predictions


def _blank_of(text: str, vocab: Vocab, is_causal: bool, longest: int) -> ClozeItem:
    """The text as token IDs with the position of its blank, whose ID is replaced later.

    A space before the blank belongs to the predicted token, as in the training text of a byte-level tokenizer.
    """
    mask = "" if vocab.mask is None else vocab.piece(vocab.mask)
    marked = text.replace(mask, BLANK) if mask else text
    before, sign, behind = marked.partition(BLANK)
    before = before.removesuffix(" ") if sign else before
    if BLANK in behind or not (sign or is_causal):
        raise BadInput(f"predict: {text!r}: got {marked.count(BLANK)} blanks, expected one; write {BLANK} at its place")
    ids = [*vocab.encode(before), 0, *([] if is_causal else vocab.encode(behind))]
    special = sum(map(len, vocab.around[:2]))
    if len(ids) + special > longest:
        raise BadInput(
            f"predict: {text[:40]!r}...: got {len(ids) + special:,} tokens, expected at most {longest:,}; shorten it"
        )
    return ClozeItem(np.array(ids, np.int32), len(vocab.encode(before)))
