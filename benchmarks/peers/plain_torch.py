"""Plain torch: what one GPU reaches without Sesame, as a scale for Sesame's speed.

    python benchmarks/peers/plain_torch.py gpt2|bert512|bert128 [--seconds 10] [--dropout 0.1] [--device cuda] ...

GPT-2 124M at 1,024 tokens, and BERT base at 512 or 128 tokens with masked tokens and sentence pairs. Weights are
float32, products are bf16 (autocast), attention is `scaled_dot_product_attention`, AdamW is fused, and torch.compile
compiles the whole model with its loss. All sequences have the maximum length, and the batches are on the device before
the first step. BERT's head reads masked positions only, and the token table is padded to a multiple of 128 rows.

The last line of the output is a JSON object. The script needs only torch.
"""
# ruff: noqa: E402

import time

BEGAN = time.perf_counter()  # before torch is imported, which takes seconds

import argparse
import json
import math
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

MASKED = 0.15  # fraction of BERT's tokens that are predicted
WARM_UP = 3  # steps before the time is taken
READY = 8  # different micro-batches
MICRO_AT_ONCE = 8  # micro-batches before the host waits for the device
BACKENDS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION)


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of its batches."""

    causal: bool
    length: int
    rows: int  # sequences of a micro-batch
    batch: int  # sequences of a step
    vocab: int
    width: int = 768
    layers: int = 12
    dropout: float = 0.1
    attention_dropout: float = 0.1

    @property
    def heads(self) -> int:
        return max(1, self.width // 64)

    @property
    def table(self) -> int:
        """Rows of the token table: the vocabulary, padded to a multiple of 128."""
        return -(-self.vocab // 128) * 128

    @property
    def masked(self) -> int:
        """Predicted tokens of a sequence of BERT."""
        return math.ceil(MASKED * self.length)


SHAPES = {
    "gpt2": Shape(causal=True, length=1_024, rows=64, batch=512, vocab=50_257),
    "bert512": Shape(causal=False, length=512, rows=128, batch=256, vocab=30_522),
    "bert128": Shape(causal=False, length=128, rows=256, batch=256, vocab=30_522),
}


class Layer(nn.Module):
    """Attention and feed-forward network, with the norms before them (GPT-2) or after them (BERT)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.shape = shape
        self.attention_in, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x_BSD: Tensor) -> Tensor:
        shape = self.shape
        rows, length, width = x_BSD.shape
        qkv = self.attention_in(x_BSD).view(rows, length, 3, shape.heads, -1).transpose(1, 3)
        query, keys, values = qkv.unbind(2)  # [B, H, S, D / H]
        found = F.scaled_dot_product_attention(
            query, keys, values, dropout_p=shape.attention_dropout, is_causal=shape.causal
        )
        return F.dropout(self.attention_out(found.transpose(1, 2).reshape(rows, length, width)), shape.dropout)

    def feed(self, x_BSD: Tensor) -> Tensor:
        inner = F.gelu(self.inner(x_BSD), approximate="tanh" if self.shape.causal else "none")
        return F.dropout(self.outer(inner), self.shape.dropout)

    def forward(self, x_BSD: Tensor) -> Tensor:
        if self.shape.causal:
            x_BSD = x_BSD + self.attend(self.attention_norm(x_BSD))
            return x_BSD + self.feed(self.feed_norm(x_BSD))
        x_BSD = self.attention_norm(x_BSD + self.attend(x_BSD))
        return self.feed_norm(x_BSD + self.feed(x_BSD))


class Backbone(nn.Module):
    """The embeddings and all layers, with weights of GPT-2's and BERT's initial standard deviation."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.table, shape.width)
        self.positions = nn.Embedding(shape.length, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)

    def start(self) -> None:
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)

    def run_layers(self, x_BSD: Tensor) -> Tensor:
        for layer in self.layers:
            x_BSD = layer(x_BSD)
        return x_BSD


class GPT(Backbone):
    """GPT-2 with the loss of the next token at each position."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.start()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x_BSD = F.dropout(self.tokens(batch["ids"]) + self.positions.weight, self.shape.dropout)
        logits_BSV = F.linear(self.norm(self.run_layers(x_BSD)), self.tokens.weight)
        return F.cross_entropy(logits_BSV.flatten(0, 1).float(), batch["targets"].flatten())


class BERT(Backbone):
    """BERT with the losses of masked tokens and of sentence pairs."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        width = shape.width
        self.segments = nn.Embedding(2, width)
        self.head, self.head_norm, self.head_bias = (
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.Parameter(torch.zeros(shape.table)),
        )
        self.pooler, self.pair = nn.Linear(width, width), nn.Linear(width, 2)
        self.start()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        x_BSD = self.tokens(batch["ids"]) + self.positions.weight + self.segments(batch["segments"])
        x_BSD = self.run_layers(F.dropout(self.norm(x_BSD), self.shape.dropout))
        state_MD = x_BSD.flatten(0, 1).index_select(0, batch["masked_at"])
        state_MD = self.head_norm(F.gelu(self.head(state_MD)))
        logits_MV = F.linear(state_MD, self.tokens.weight, self.head_bias)
        logits_B2 = self.pair(torch.tanh(self.pooler(x_BSD[:, 0])))
        return F.cross_entropy(logits_MV.float(), batch["targets"]) + F.cross_entropy(logits_B2.float(), batch["pairs"])


def make_batches(shape: Shape) -> Iterator[dict[str, Tensor]]:
    """Yield random micro-batches, whose tokens are as unequally frequent as words."""
    rows, length = shape.rows, shape.length
    frequency_V = 1 / (torch.arange(shape.vocab) + 2.7)

    def draw(*sizes: int) -> Tensor:
        return torch.multinomial(frequency_V, math.prod(sizes), replacement=True).view(sizes)

    for _ in range(READY):
        if shape.causal:
            ids = draw(rows, length + 1)
            yield {"ids": ids[:, :-1].contiguous(), "targets": ids[:, 1:].contiguous()}
            continue
        place = torch.rand(rows, length).argsort(1)[:, : shape.masked].sort(1).values
        yield {
            "ids": draw(rows, length),
            "segments": (torch.arange(length) >= length // 2).long().repeat(rows, 1),
            "masked_at": (place + length * torch.arange(rows)[:, None]).flatten(),
            "targets": draw(rows * shape.masked),
            "pairs": torch.randint(2, (rows,)),
        }


def rank_backends(shape: Shape) -> list[SDPBackend]:
    """The kernels for attention that work on this GPU, the fastest first."""
    seconds = dict[SDPBackend, float]()
    sizes = (shape.rows, shape.heads, shape.length, shape.width // shape.heads)
    query, keys, values = (torch.randn(sizes, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
    for backend in BACKENDS:
        try:
            with sdpa_kernel([backend]):
                for attempt in range(4):
                    if attempt == 1:
                        torch.cuda.synchronize()
                        began = time.perf_counter()
                    found = F.scaled_dot_product_attention(
                        query, keys, values, dropout_p=shape.attention_dropout, is_causal=shape.causal
                    )
                    found.backward(torch.ones_like(found))
                torch.cuda.synchronize()
            seconds[backend] = time.perf_counter() - began
        except RuntimeError as error:
            print(f"{backend.name}: {error}", file=sys.stderr)
    return sorted(seconds, key=seconds.__getitem__)


class Training:
    """The model, its optimizer and its batches on the device."""

    def __init__(self, shape: Shape, device: str, *, compiles: bool) -> None:
        torch.manual_seed(0)
        self.shape, self.device = shape, device
        self.net = (GPT if shape.causal else BERT)(shape).to(device)
        self.compute: Any = torch.compile(self.net, dynamic=False) if compiles else self.net
        weights = list(self.net.parameters())
        groups = [
            {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": 0.01},
            {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
        self.batches = [{name: x.to(device) for name, x in batch.items()} for batch in make_batches(shape)]
        self.num_micro = max(1, shape.batch // shape.rows)

    def step(self, number: int) -> Tensor:
        """One update; the result is the loss of the last micro-batch."""
        loss = torch.zeros(())
        for micro in range(self.num_micro):
            batch = self.batches[(number * self.num_micro + micro) % READY]
            with torch.autocast(self.device, torch.bfloat16):
                loss = self.compute(batch)
            (loss / self.num_micro).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def measure(shape: Shape, device: str, seconds: float, *, compiles: bool) -> dict[str, Any]:
    """Tokens per second, seconds of a step and memory of a training of at least `seconds` seconds."""
    cuda = device == "cuda"
    synchronize = torch.cuda.synchronize if cuda else (lambda: None)
    for backend in rank_backends(shape) if cuda else [SDPBackend.MATH]:
        try:
            # inside this block, the compiler and the kernels of eager mode select this kernel
            attention: AbstractContextManager[Any] = sdpa_kernel([backend]) if cuda else nullcontext()
            with attention:
                training = Training(shape, device, compiles=compiles)
                if cuda:
                    torch.cuda.reset_peak_memory_stats()
                training.step(0)
                synchronize()
                first_step_s = time.perf_counter() - BEGAN
                for number in range(1, WARM_UP):
                    training.step(number)
                synchronize()
                done, started, took = 0, time.perf_counter(), 0.0
                loss = torch.zeros(())
                while took < seconds or not done:
                    for _ in range(max(1, MICRO_AT_ONCE // training.num_micro)):
                        loss = training.step(WARM_UP + done)
                        done += 1
                    synchronize()
                    took = time.perf_counter() - started
        except RuntimeError as error:
            print(f"{backend.name}: {error}", file=sys.stderr)
            torch.compiler.reset()
            continue
        return {
            "tokens_per_s": done * training.num_micro * shape.rows * shape.length / took,
            "step_s": took / done,
            "first_step_s": first_step_s,
            "gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
            "steps": done,
            "loss": float(loss),
            "attention": backend.name,
            "compiled": compiles,
            "device": torch.cuda.get_device_name() if cuda else "a CPU",
            "torch": torch.__version__,
        }
    sys.exit("no kernel for attention works on this device; see the errors above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=SHAPES)
    parser.add_argument("--rows", type=int, help="sequences of a micro-batch")
    parser.add_argument("--batch", type=int, help="sequences of a step")
    parser.add_argument("--length", type=int, help="tokens of a sequence")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int, help="hidden size")
    parser.add_argument("--vocab", type=int, help="tokens of the vocabulary")
    parser.add_argument("--dropout", type=float, help="dropout of the states, and of attention [0.1]")
    parser.add_argument("--attention-dropout", type=float, help="dropout of attention [as --dropout]")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--no-compile", action="store_true")
    given = parser.parse_args()
    if given.attention_dropout is None:
        given.attention_dropout = given.dropout
    names = ("rows", "batch", "length", "layers", "width", "vocab", "dropout", "attention_dropout")
    changes = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    shape = Shape(**{**vars(SHAPES[given.net]), **changes})
    torch.set_float32_matmul_precision("high")
    print(json.dumps(measure(shape, given.device, given.seconds, compiles=not given.no_compile)), flush=True)


if __name__ == "__main__":
    main()
