"""Options of generation: limits on the generated tokens, and decoding methods."""

from typing import Literal

from preprocessing.spec import require, spec


@spec
class GenerationLimits:
    """What may be written, by any method. Lengths count new tokens, the one that ends a row among them."""

    max_new_tokens: int = 64  # a row ends earlier where its net has no further position
    min_new_tokens: int = 0  # no end before so many
    ends: tuple[int, ...] = ()  # tokens that end a row
    force_eos: bool = False  # the last token of max_new_tokens is the first of `ends` (BART)
    barred: tuple[int, ...] = ()  # tokens that are never written: rows of the table without a piece, [PAD], ...
    repetition_penalty: float = (
        1.0  # scores of tokens that the row has: divided by it, negative ones multiplied (CTRL 4.1)
    )
    no_repeat_ngram_size: int = 0  # no n-gram of this size twice; 0: any
    no_repeat_in: Literal["row", "new"] = "row"  # where: in a row, its prompt included, or among its new tokens

    def __post_init__(self) -> None:
        require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "a whole number from 1 up")
        require(
            0 <= self.min_new_tokens <= self.max_new_tokens,
            "min_new_tokens",
            self.min_new_tokens,
            f"from 0 up to max_new_tokens, {self.max_new_tokens}",
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
            "a whole number from 0 up; 0 allows any",
        )
        require(bool(self.ends) or not self.force_eos, "force_eos", self.force_eos, "false without a token in ends")


@spec
class GreedyDecoding:
    """The token with the highest score, each time."""

    kind: Literal["greedy"] = "greedy"


@spec
class SampledDecoding:
    """A token drawn from what the filters leave (top-k: arXiv:1805.04833, 5.4; nucleus: arXiv:1904.09751, 3.1)."""

    kind: Literal["sampling"] = "sampling"
    temperature: float = 1.0  # scores are divided by it
    top_k: int = 0  # the most probable ones, and all that are as probable as the last of them; 0: all
    top_p: float = 1.0  # the fewest, the most probable first, whose probabilities sum to this or more

    def __post_init__(self) -> None:
        require(
            self.temperature > 0, "temperature", self.temperature, "a number above 0; greedy is a method of its own"
        )
        require(self.top_k >= 0, "top_k", self.top_k, "a whole number from 0 up; 0 keeps all")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "a number above 0 and up to 1")


@spec
class BeamSearch:
    """The best of several rows that are written side by side. Score: sum of log p / n ** length_penalty, n new tokens.

    `stop` says when a prompt is done: `full`, as soon as as many rows have ended as there are beams; `hopeless`, when
    no open row is better than the worst of these at its present length, or, `never`, at the greatest length (which
    differs where length_penalty is above 0). `never` and a penalty of 0 are the beam search of textbooks.
    """

    kind: Literal["beams"] = "beams"
    num_beams: int = 4
    length_penalty: float = 1.0
    stop: Literal["hopeless", "never", "full"] = "hopeless"

    def __post_init__(self) -> None:
        require(self.num_beams >= 1, "num_beams", self.num_beams, "a whole number from 1 up")


Method = GreedyDecoding | SampledDecoding | BeamSearch
