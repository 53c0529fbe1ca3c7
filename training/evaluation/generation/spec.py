"""Options of generation: limits on the generated tokens, and decoding methods."""

from typing import Literal

from preprocessing.spec import key, require, spec


@spec
class GenerationLimits:
    """Limits of generated text, for any decoding method.

    Lengths count new tokens, the end token included.
    """

    # A sequence ends earlier if the model has no further position.
    max_new_tokens: int = key(default=64, doc="Maximum number of new tokens.")
    min_new_tokens: int = key(default=0, doc="Minimum number of new tokens before an end token.")
    ends: tuple[int, ...] = key(default=(), doc="Tokens that end a sequence.")
    force_eos: bool = key(default=False, doc="Whether the last of max_new_tokens is always the first of ends (BART).")
    # For example [PAD], and rows of the embedding table that have no token.
    barred: tuple[int, ...] = key(default=(), doc="Tokens that are never generated.")
    # Positive scores of these tokens are divided by it, and negative scores are multiplied by it (CTRL 4.1).
    repetition_penalty: float = key(default=1.0, doc="Penalty of tokens that already occur; 1: none.")
    no_repeat_ngram_size: int = key(default=0, doc="Size of n-grams that may occur only once; 0: no restriction.")
    no_repeat_in: Literal["row", "new"] = key(
        default="row", doc="Scope of no_repeat_ngram_size: the sequence with its prompt, or its new tokens."
    )

    def __post_init__(self) -> None:
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "an integer of at least 1")
        require(
            0 <= self.min_new_tokens <= self.max_new_tokens,
            "min_new_tokens",
            self.min_new_tokens,
            f"0 to {self.max_new_tokens} (max_new_tokens)",
        )
        require(
            self.repetition_penalty > 0,
            "repetition_penalty",
            self.repetition_penalty,
            "a number above 0; 1 changes nothing",
        )
        require(
            self.no_repeat_ngram_size >= 0,
            "no_repeat_ngram_size",
            self.no_repeat_ngram_size,
            "an integer of at least 0; 0 allows any",
        )
        require(bool(self.ends) or not self.force_eos, "force_eos", self.force_eos, "false, because ends is empty")


@spec
class GreedyDecoding:
    """Greedy decoding: the token with the highest score."""

    kind: Literal["greedy"] = "greedy"


@spec
class SampledDecoding:
    """Sampling after top-k (arXiv:1805.04833, 5.4) and nucleus (arXiv:1904.09751, 3.1) filters."""

    kind: Literal["sampling"] = "sampling"
    temperature: float = key(default=1.0, doc="Temperature by which scores are divided.")
    # Tokens as probable as the last of them are included.
    top_k: int = key(default=0, doc="Number of most probable tokens to sample from; 0: all.")
    top_p: float = key(default=1.0, doc="Cumulative probability of the most probable tokens to sample from.")

    def __post_init__(self) -> None:
        require(
            self.temperature > 0, "temperature", self.temperature, "a number above 0; greedy is a method of its own"
        )
        require(self.top_k >= 0, "top_k", self.top_k, "an integer of at least 0; 0 keeps all")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "a number above 0 and up to 1")


@spec
class BeamSearch:
    """Beam search: the best of several sequences that are generated in parallel.

    The score is the sum of log p / n ** length_penalty, for n new tokens. `stop` decides when a prompt is done. `full`:
    K sequences have ended, for K beams. `hopeless`: in addition, no open sequence has a better score than the worst of
    them. `never`: as `hopeless`, but the score is computed for the maximum length, which differs if length_penalty is
    above 0. `never` with a length_penalty of 0 is the beam search of textbooks.
    """

    kind: Literal["beams"] = "beams"
    num_beams: int = key(default=4, doc="Beam width.")
    length_penalty: float = key(default=1.0, doc="Exponent of the length by which a beam's log-probability is divided.")
    stop: Literal["hopeless", "never", "full"] = key(default="hopeless", doc="Stopping criterion of a prompt.")

    def __post_init__(self) -> None:
        require(self.num_beams >= 1, "num_beams", self.num_beams, "an integer of at least 1")


Method = GreedyDecoding | SampledDecoding | BeamSearch
