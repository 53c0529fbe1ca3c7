"""Speed of likelihoods: compared with lm-eval, and with the memory of Transformer-XL compared with sliding windows.

    python benchmarks/likelihood.py peers [--data-dir DIR] [--net 4x256x4] [--tasks blimp:200,piqa:60]
    python benchmarks/likelihood.py memory [--layers 6] [--width 256] [--memory 256] [--window 64] [--tokens 4096]

`peers` needs lm-eval (0.4.13) on the path; it is no dependency of Sesame. Both libraries score the same requests with
the same model, which has random weights. Seconds are CPU time, the minimum over the rounds. A ratio above 1 means that
Sesame is faster. `memory` computes the same predictions in two ways (arXiv:1901.02860, section 4.5). The first uses
windows that reuse the states of previous tokens. The second predicts each token from a fixed number of tokens.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orchestration.config import tasks_of
from preprocessing.tokenization import ByteLevelBPE, Vocab, vocab_from_file
from training.evaluation.likelihood import Request
from training.evaluation.likelihood.models import score_causal
from training.evaluation.likelihood.models.causal import token_log_ps
from training.evaluation.likelihood.models.rolling import pairs_of, score_with_memory
from training.evaluation.tasks import LoglikelihoodChoice
from training.formats import to_transformers
from training.losses import NextToken
from training.model import Model
from training.specs import Decoder, LearnedPositions, RelativePositions


def requests_of(name: str, count: int, data_dir: Path) -> list[Request]:
    """The requests for `count` examples of a task, from five places in its last split."""
    (task,) = tasks_of(name)
    assert isinstance(task.task, LoglikelihoodChoice), f"{name} is not a likelihood task"
    items, _ = task.items(list(task.files)[-1], data_dir)
    starts = range(0, len(items) // 5 * 5, len(items) // 5)
    return task.task.make_requests([item for start in starts for item in items[start : start + count // 5]]).requests


def theirs(model: Model, vocab: Vocab) -> Any:
    """The model of lm-eval with the same weights."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        (net := Path(folder) / "net").mkdir()
        vocab.save(Path(folder) / "vocab")
        to_transformers(dict(model.named_parameters()), model.spec, Path(folder) / "vocab", net)
        loaded, tokenizer = AutoModelForCausalLM.from_pretrained(net).eval(), AutoTokenizer.from_pretrained(net)
    return HFLM(pretrained=loaded, tokenizer=tokenizer, batch_size=16, device="cpu")


def peers(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The result of the comparison with lm-eval for each task."""
    from lm_eval.api.instance import Instance

    layers, width, heads = map(int, options.net.split("x"))
    vocab = vocab_from_file(ByteLevelBPE(path=str(options.data_dir.parent / "tokenizers/gpt2-roberta")))
    trunk = Decoder(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        position_embedding=LearnedPositions(max_position_embeddings=1024),
    )
    model = Model(trunk, (NextToken(),), vocab.size, seed=0).eval()
    lm, rows = theirs(model, vocab), list[dict[str, Any]]()
    for name, count in (task.split(":") for task in options.tasks.split(",")):
        requests, spent = requests_of(name, int(count), options.data_dir), list[tuple[float, float]]()
        their_requests = [
            Instance(request_type="loglikelihood", doc={}, arguments=tuple(one), idx=0) for one in requests
        ]
        ours, found = list[Any](), list[Any]()
        for _ in range(options.rounds):
            begun = time.process_time()
            ours = score_causal(model, vocab, requests)
            between = time.process_time()
            found = lm.loglikelihood(their_requests, disable_tqdm=True)
            spent.append((between - begun, time.process_time() - between))
        mine, other = (min(each) for each in zip(*spent, strict=True))
        off = max(abs(one.nats - nats) for one, (nats, _) in zip(ours, found, strict=True))
        seconds = {"sesame_s": round(mine, 2), "lm_eval_s": round(other, 2), "ratio": round(other / mine, 2)}
        rows.append({"net": options.net, "task": name, "requests": len(requests)} | seconds | {"off": f"{off:.0e}"})
    return rows


def memory(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Milliseconds per token with memory and with sliding windows."""
    positions = RelativePositions(mem_len=options.memory, clamp_len=options.memory, same_length=True)
    trunk = Decoder(
        num_hidden_layers=options.layers,
        hidden_size=options.width,
        num_attention_heads=options.width // 64,
        position_embedding=positions,
        norm_position="post",
        activation="relu",
    )
    model = Model(trunk, (NextToken(),), options.vocab, seed=0).eval()
    ids = np.random.default_rng(0).integers(0, options.vocab, options.tokens).tolist()
    begun = time.process_time()
    score_with_memory(model, 0, ids, options.window)
    between = time.process_time()
    few = ids[: options.memory + options.sliding]  # few tokens, because sliding windows are slow
    pairs = pairs_of([0, *few], options.memory, 1)[1:]
    slid = time.process_time()
    token_log_ps(model, pairs, share=False)
    each = (between - begun) / len(ids) * 1e3, (time.process_time() - slid) / len(pairs) * 1e3
    named = {"memory": options.memory, "window": options.window, "layers": options.layers, "width": options.width}
    return [
        named | {"memory_ms": round(each[0], 3), "sliding_ms": round(each[1], 2), "ratio": round(each[1] / each[0])}
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["peers", "memory"])
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data/downstream"))
    parser.add_argument("--net", default="4x256x4", help="layers x width x heads")
    parser.add_argument("--tasks", default="blimp:200,piqa:60,winogrande:100,arc_easy:60,lambada:60,boolq:30")
    parser.add_argument("--rounds", type=int, default=3)
    for name, default in {"layers": 6, "width": 256, "memory": 256, "window": 64, "tokens": 4096}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--vocab", type=int, default=10_000)
    parser.add_argument("--sliding", type=int, default=64, help="number of tokens to predict with sliding windows")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for row in peers(options) if options.what == "peers" else memory(options):
        print(json.dumps(row) if options.json else "  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
