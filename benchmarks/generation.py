"""Time to generate a token by the length of its sequence: greedy search, with and without a key-value cache.

    python benchmarks/generation.py [--net gpt2|transformer_xl|bart] [--tokens 896] [--peers] [--json]

Models have random weights and the base size of their family, or the size in --width, --layers and --vocab. Each result
is the median over 32 tokens, or over 3 tokens without a cache. Times are CPU time of this process, so other processes
have little effect. `--peers` also measures `generate` of transformers with the same exported GPT-2, on whole sequences.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from preprocessing import tokenization
from training.evaluation.generation import GenerationLimits, Prompt, generate
from training.evaluation.generation.rows import begin, step
from training.formats import to_transformers
from training.losses import NextToken
from training.model import Model
from training.specs import (
    Architecture,
    Decoder,
    EncoderDecoder,
    LearnedPositions,
    RelativePositions,
    Seq2SeqLearnedPositions,
)


def built(net: str, width: int, layers: int, vocab_size: int) -> Model:
    """The model, with random weights."""
    sizes: dict[str, Any] = {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": width // 64,
        "hidden_dropout": 0.0,
    }
    trunks: dict[str, Architecture] = {
        "gpt2": Decoder(**sizes, position_embedding=LearnedPositions(max_position_embeddings=1024)),
        "transformer_xl": Decoder(
            **sizes, position_embedding=RelativePositions(mem_len=256), norm_position="post", activation="relu"
        ),
        "bart": EncoderDecoder(
            **sizes, position_embedding=Seq2SeqLearnedPositions(max_position_embeddings=1026, offset=2)
        ),
    }
    return Model(trunks[net], (NextToken(),), vocab_size, seed=0).eval()


@torch.no_grad()
def milliseconds(model: Model, tokens: int, *, cached: bool) -> dict[int, float]:
    """Median time of a token in milliseconds, by the length of its sequence."""
    source = np.arange(64) if model.spec.model.reads_source else None
    rows, spent = begin(model, [Prompt(np.arange(8), source)], cached=cached), dict[int, list[float]]()
    marks = [mark for mark in (32, 64, 128, 256, 512, 896) if mark <= tokens]
    if not cached:
        for mark in marks:
            filled = begin(model, [Prompt(np.arange(mark), source)], cached=False)
            spent[mark] = [_timed(model, filled)[0] for _ in range(3)]
        return {mark: median(times) * 1e3 for mark, times in spent.items()}
    while int(rows.lengths_B[0]) < tokens:
        length = int(rows.lengths_B[0])
        seconds, rows = _timed(model, rows)
        near = [mark for mark in marks if mark - 32 < length <= mark]
        for mark in near:
            spent.setdefault(mark, []).append(seconds)
    return {mark: median(times) * 1e3 for mark, times in spent.items()}


def _timed(model: Model, rows: Any) -> tuple[float, Any]:
    """The CPU time of a step in seconds, and the sequences with the generated token."""
    began = time.process_time()
    score_BV, rows = step(model, rows)
    rows = rows.append(score_BV.argmax(-1))
    return time.process_time() - began, rows


def beside_transformers(model: Model, tokens: int) -> dict[str, float]:
    """Median seconds over three runs to generate `tokens` tokens for a batch of four prompts, by library."""
    import transformers

    transformers.logging.set_verbosity_error()
    prompts, spent = [Prompt(np.arange(row, row + 16)) for row in range(4)], dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        tokenization.train(tokenization.ByteLevelBPE(vocab_size=300), ["some text"]).save(Path(folder) / "vocab")
        state = {name: tensor.detach() for name, tensor in model.named_parameters()}
        to_transformers(state, model.spec, Path(folder) / "vocab", Path(folder))
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor(np.stack([prompt.ids for prompt in prompts]))
    for _ in range(3):
        began = time.process_time()
        ours = [row.ids.tolist() for row in generate(model, prompts, GenerationLimits(max_new_tokens=tokens))]
        spent.setdefault("sesame", []).append(time.process_time() - began)
        began = time.process_time()
        settings = {"eos_token_id": None, "pad_token_id": 0, "do_sample": False, "max_new_tokens": tokens}
        found = theirs.generate(ids, attention_mask=torch.ones_like(ids), **settings)[:, 16:].tolist()
        spent.setdefault("transformers", []).append(time.process_time() - began)
        print("same tokens" if ours == found else "TOKENS DIFFER")
    return {name: median(times) for name, times in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=["gpt2", "transformer_xl", "bart"], default="gpt2")
    parser.add_argument("--tokens", type=int, default=896)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50_257)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    model = built(asked.net, asked.width, asked.layers, asked.vocab)
    found: dict[str, Any] = {"cache": milliseconds(model, asked.tokens, cached=True)}
    found["no cache"] = milliseconds(model, asked.tokens, cached=False)
    if asked.peers and asked.net == "gpt2":
        found["beside transformers, seconds"] = beside_transformers(model, 128)
    if asked.json:
        print(json.dumps(found))
        return
    print(f"{'ms a token, length':20}" + "".join(f"{mark:>8}" for mark in found["cache"]))
    for name in ("cache", "no cache"):
        print(f"{name:20}" + "".join(f"{found[name].get(mark, 0):8.1f}" for mark in found["cache"]))
    for name, seconds in found.get("beside transformers, seconds", {}).items():
        print(f"{name:20}{seconds:8.2f} s")


if __name__ == "__main__":
    main()
