"""How fast a run is: real tokens per second, seconds per step, share of the device's peak that the model uses."""

from dataclasses import dataclass
from time import perf_counter

from training.specs import Decoder, Encoder, EncoderDecoder, Trunk, Twin, TwoStream

PEAK_BF16 = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12}  # dense FLOP/s, NVIDIA data sheets


def peak(device_name: str) -> float | None:
    """Dense bf16 FLOP/s of a device by the name torch gives it; None where it is not known.

    >>> peak("NVIDIA H100 80GB HBM3")
    989000000000000.0
    """
    return next((flops for name, flops in PEAK_BF16.items() if name in device_name), None)


@dataclass(frozen=True)
class Work:
    """What a batch asks of a model, over all workers; padding asks nothing."""

    tokens: int
    squares: int  # sum over the rows of tokens squared: what attention looks at
    targets: int  # rows that are projected to the vocabulary
    source_tokens: int = 0  # what an encoder reads while the others are its decoder's
    source_squares: int = 0
    crossed: int = 0  # sum over the rows of tokens times source tokens

    @property
    def read(self) -> int:
        """Tokens that the model reads."""
        return self.tokens + self.source_tokens

    @property
    def length(self) -> float:
        """Tokens of a row: those of each where all are alike, else the mean over the tokens."""
        return self.squares / max(1, self.tokens)

    @property
    def rows(self) -> float:
        return self.tokens / max(1.0, self.length)


def flops(trunk: Trunk, vocab_size: int, work: Work) -> float:
    """FLOPs of a forward and a backward pass, as arXiv:2104.04473 counts: 6 per weight and token, 12 per attended pair.

    GPT-2 small at 1,024 tokens costs 0.8 GFLOP a token, and a bidirectional attention twice the pairs of a causal one:

    >>> gpt2 = Decoder(layers=12, width=768, heads=12)
    >>> round(flops(gpt2, 50257, Work(tokens=1024, squares=1024**2, targets=1023)) / 1024 / 1e9, 3)
    0.798

    Relative attention takes 18 for a pair, since it scores the distance too; its linear over the distances, which all
    rows share, is left out, and so is what a head does before the token table. Of an adaptive softmax the first cluster
    counts, where most of the targets are.
    """
    clusters = trunk.cutoffs if isinstance(trunk, Decoder) else ()
    answers = (clusters[0] if clusters else vocab_size) * trunk.table_width * work.targets
    return 6 * (answers + _products(trunk, work))


def _products(trunk: Trunk, work: Work) -> float:
    """Multiplications of a forward pass between the token table and the heads."""
    tokens, squares, inside = work.tokens, work.squares, trunk.heads * trunk.width_of_head
    linears = 4 * trunk.width * inside + 2 * trunk.width * trunk.inner_width  # of a block, for a token
    keys_values = 2 * trunk.width * inside
    match trunk:
        case Encoder():
            widened = trunk.table_width * trunk.width if trunk.table_width != trunk.width else 0
            of_all = keys_values if trunk.global_tokens == "first" else 0  # what a global token sees of the others
            pairs = _around(trunk.window, work) if trunk.window else squares
            return widened * tokens + trunk.layers * ((linears + of_all) * tokens + 2 * inside * pairs)
        case Decoder(positions="relative"):
            pairs = squares / 2 + trunk.memory * tokens
            remembered = keys_values * trunk.memory * work.rows
            return trunk.layers * (linears * tokens + remembered + 3 * inside * pairs)
        case Decoder():
            banded = trunk.layers // 2 if trunk.band else 0
            pairs = (trunk.layers - banded) * squares / 2 + banded * _before(trunk.band, work)
            return trunk.layers * linears * tokens + 2 * inside * pairs
        case EncoderDecoder():
            read = linears * work.source_tokens + 2 * inside * work.source_squares
            said = linears * tokens + 2 * inside * squares / 2
            crossed = keys_values * (tokens + work.source_tokens) + 2 * inside * work.crossed
            return trunk.layers * (read + said + crossed)
        case TwoStream():
            pairs = (tokens + work.targets) * (work.length + trunk.memory)
            remembered = keys_values * trunk.memory * work.rows
            asked = (linears - keys_values) * work.targets
            return trunk.layers * (linears * tokens + remembered + asked + 3 * inside * pairs)
        case Twin():
            nets = [trunk.discriminator_net] + [trunk.generator_net] * (trunk.samples == "generator")
            products = sum(_products(net, work) for net in nets)  # of a frozen net there is no backward pass
            return products + (_products(trunk.generator_net, work) / 3 if trunk.samples == "frozen" else 0.0)


def _around(window: int, work: Work) -> float:
    """Pairs of a token and those at most half a window from it.

    >>> _around(2, Work(tokens=8, squares=32, targets=0))  # two rows of four: 2 + 3 + 3 + 2 each
    20.0
    """
    side = min(window / 2, work.length - 1)
    return work.rows * (work.length * (2 * side + 1) - side * (side + 1))


def _before(band: int, work: Work) -> float:
    """Pairs of a token and those at most `band` before it; half of the square where that is all of them."""
    near = min(band, work.length)
    return work.rows * near * (work.length - near / 2)


class Meter:
    """Adds up steps between two reports. The clock runs on while a step waits for its batch, not across `skip`."""

    def __init__(self, trunk: Trunk, vocab_size: int, peak: float | None) -> None:
        """`peak` is the FLOP/s of all devices together, None where it is not known."""
        self.trunk, self.vocab_size, self.peak = trunk, vocab_size, peak
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        self.since = perf_counter()

    def skip(self) -> None:
        """Do not count the time since the last step: it went to an evaluation or a checkpoint."""
        self.since = perf_counter()

    def add(self, work: Work) -> None:
        """A step is finished."""
        now = perf_counter()
        self.seconds += now - self.since
        self.since = now
        self.steps += 1
        self.tokens += work.read
        self.flops += flops(self.trunk, self.vocab_size, work)

    def report(self) -> dict[str, float]:
        """Means over the steps since the last report: tokens/s, s/step, and MFU where the peak is known."""
        seconds = max(self.seconds, 1e-9)
        values = {"perf/tokens_per_s": self.tokens / seconds, "perf/step_s": seconds / max(self.steps, 1)}
        if self.peak:
            values["perf/mfu"] = self.flops / seconds / self.peak
        self.steps, self.tokens, self.flops, self.seconds = 0, 0, 0.0, 0.0
        return values
