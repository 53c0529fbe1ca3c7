"""A `LikelihoodModel` that selects the method that fits a model."""

from collections.abc import Sequence
from dataclasses import dataclass

from preprocessing.errors import BadInput
from preprocessing.tokenization import Template, Vocab
from training.evaluation.likelihood import (
    LogP,
    Perplexity,
    PerplexityText,
    PseudoKind,
    Request,
    Windowing,
    encoder,
    pair_of,
)
from training.evaluation.likelihood.models.batches import MICRO_TOKENS, OnBatch, ignore_activity
from training.evaluation.likelihood.models.causal import score_causal
from training.evaluation.likelihood.models.masked import score_masked
from training.evaluation.likelihood.models.rolling import perplexities
from training.evaluation.likelihood.models.seq2seq import begins_with, score_seq2seq, sides
from training.model import Model


@dataclass(frozen=True)
class CausalLikelihood:
    """Likelihoods by a model of any kind.

    A decoder gives log-probabilities from left to right, and an encoder-decoder gives those of the target after a
    source. A masked language model gives pseudo-log-likelihoods.
    """

    model: Model
    vocab: Vocab
    micro_tokens: int = MICRO_TOKENS
    on_batch: OnBatch = ignore_activity

    def log_ps(self, requests: Sequence[Request], pseudo: PseudoKind = "within_word_l2r") -> list[LogP]:
        options = {"micro_tokens": self.micro_tokens, "on_batch": self.on_batch}
        if self._reads_source:
            return score_seq2seq(self.model, self.vocab, requests, **options)  # type: ignore[arg-type]
        if self._is_causal:
            return score_causal(self.model, self.vocab, requests, **options)  # type: ignore[arg-type]
        return score_masked(self.model, self.vocab, requests, kind=pseudo, **options)  # type: ignore[arg-type]

    def perplexities(self, texts: Sequence[PerplexityText], windowing: Windowing) -> list[Perplexity]:
        if self._reads_source or not self._is_causal:
            raise BadInput(
                "perplexity requires a causal language model, such as GPT-2; choose another task for this model"
            )
        return perplexities(self.model, self.vocab, texts, windowing, self.micro_tokens, self.on_batch)

    def describe(self, pseudo: PseudoKind = "within_word_l2r") -> str:
        if self._reads_source:
            return "log p of the decoder, with the context as source; the end token is not scored"
        if self._is_causal:
            return "log p, from left to right"
        return f"pseudo-log-likelihood ({pseudo}), special tokens not scored"

    def format_request(self, request: Request) -> str:
        if self._reads_source:
            source, continuation, _ = sides(Template(self.vocab), encoder(self.vocab), request)
            begins = begins_with(self.model.spec, self.vocab)
            return f"{self._text(source)} => {self._text([*begins, *continuation])}"
        if self._is_causal:
            context, continuation = pair_of(self.vocab, request)
            return self._text([*context, *continuation])
        return self._text(Template(self.vocab).row(request.context + request.continuation).ids.tolist())

    @property
    def _reads_source(self) -> bool:
        return self.model.spec.model.reads_source

    @property
    def _is_causal(self) -> bool:
        """Whether the model can predict from left to right. A model trained for any order (XLNet) can, too."""
        trunk = self.model.spec.model
        return trunk.attention_mask == "causal" or trunk.hides_own_token

    def _text(self, ids: Sequence[int]) -> str:
        return self.vocab.decode(ids)
