"""Time of a training step: Sesame and transformers, with the same weights, batch, optimizer and cores.

    python benchmarks/step.py [NAME ...] [--rows 4] [--length 128] [--rounds 5]      # sequences without padding
    python benchmarks/step.py --pairs CORPUS [--rows 8] [--length 128]      # segment pairs of a finished corpus
    python benchmarks/step.py gpt2 --scale tiny --rows 32 --length 64      # the recipe at a scale
    python benchmarks/step.py --threads 1 --clock cpu      # CPU time, for a machine with other work
    python benchmarks/step.py --precision bf16      # weights, states and optimizer of both systems in bfloat16

A step consists of forward pass, loss, backward pass and AdamW, in float32 at the published size with dropout.
transformers has usual settings: padded sequences, default attention (SDPA), and labels at every position. Both systems
run alternately. Times are medians over the rounds, and the ratio is the median of the ratios of the rounds: above 1,
Sesame is faster. With --pairs, padding is not counted as tokens. The losses are those of the last round.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from orchestration.config import Recipe, load
from preprocessing import tokenization as vocabularies
from preprocessing.collate import collate_padded, collate_unpadded
from preprocessing.rows import ExampleDataset
from preprocessing.schema import IGNORE, Batch, Row
from preprocessing.shards import TokenStore
from preprocessing.tokenization import Vocab
from training.formats import to_transformers
from training.losses import SentencePair
from training.model import Model, parameter_groups

NAMES: Final = ("bert_base", "gpt2", "albert_base", "electra_base", "t5_base", "xlnet_base")
SENTENCE = 16  # tokens of a sentence in a random sequence
TEXT: Final = Path(__file__).parents[1].joinpath("README.md").read_text().splitlines()
PRECISIONS: Final = {"fp32": torch.float32, "bf16": torch.bfloat16}
CLOCKS: Final = {"wall": perf_counter, "cpu": process_time}
Step = Callable[[], float]
"""A training step, which returns its loss."""


def small_vocab(recipe: Recipe, folder: Path) -> Vocab:
    """A small vocabulary of the recipe's kind, which trains fast. The model keeps its published vocabulary size."""
    sentinels = getattr(recipe.data.tokenizer, "extra_ids", 0)
    vocabularies.train(
        replace(recipe.data.tokenizer, vocab_size=300 if sentinels == 0 else 200 + sentinels), TEXT
    ).save(folder)
    return Vocab.load(folder)


def made_up(recipe: Recipe, vocab: Vocab, num_rows: int, length: int) -> list[Row]:
    """Sequences of random tokens with the recipe's masking and objective, all with the maximum length."""
    rng = np.random.default_rng(0)
    special = np.array(vocab.special_ids)
    objective, rows = recipe.objective, []
    for _ in range(num_rows):
        raw_length = objective.raw_length(length, recipe.masking)
        ids_S = rng.choice(np.setdiff1d(np.arange(vocab.size), special), size=raw_length).astype(np.int32)
        special_S = np.zeros(raw_length, dtype=bool)
        special_S[[0, raw_length // 2, -1]] = recipe.model.kind in ("encoder", "generator_discriminator")
        row: Row = {
            "input_ids": ids_S,
            "token_type_ids": (np.arange(raw_length) > raw_length // 2).astype(np.int8),
            "special_tokens_mask": special_S,
            "word_starts": np.ones(raw_length, dtype=bool),
        }
        required = recipe.masking.required_columns | objective.required_columns
        starts_S = np.arange(raw_length) % SENTENCE == 0
        optional = {"sentence_starts": starts_S, "counts": np.ones(raw_length, np.int64), "stream": ids_S}
        row |= {name: column for name, column in optional.items() if name in required}
        if any(isinstance(loss, SentencePair) for loss in recipe.losses):
            row["next_sentence_label"] = np.asarray(rng.integers(2))
        rows.append(objective(row | {"hits": recipe.masking(row, rng)}, vocab, rng))
    return rows


def tensors(batch: Batch) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.asarray(array)) for name, array in batch.items()}


def our_step(model: Model, batch: dict[str, Tensor], weights: Mapping[str, float]) -> Step:
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=1e-5, fused=True)

    def step() -> float:
        scores = model(batch)
        terms = [weight * scores[kind].loss / max(1, scores[kind].count) for kind, weight in weights.items()]
        total = torch.stack(terms).sum()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        return total.item()

    return step


def their_step(nets: Sequence[Any], loss: Callable[[], Tensor]) -> Step:
    unique = {id(weight): weight for net in nets for weight in net.parameters()}
    optimizer = torch.optim.AdamW(list(unique.values()), lr=1e-5, fused=True)

    def step() -> float:
        total = loss()
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        return total.item()

    return step


def labels_of(batch: dict[str, Tensor]) -> Tensor:
    """The labels [B, S] of a padded batch, with IGNORE at positions that are not predicted."""
    label_BS = torch.full_like(batch["input_ids"], IGNORE)
    label_BS.view(-1)[batch["targets_at"]] = batch["targets"]
    return label_BS


def inside(batch: dict[str, Tensor], side: str = "") -> Tensor:
    return (torch.arange(batch[f"{side}input_ids"].shape[1]) < batch[f"{side}lengths"][:, None]).long()


def their_loss(name: str, nets: Sequence[Any], batch: dict[str, Tensor]) -> Callable[[], Tensor]:
    """A function that computes the loss of transformers for a padded batch of Sesame."""
    net, label_BS = nets[0], labels_of(batch)
    mask = {"attention_mask": inside(batch)}
    if name.startswith(("bert", "albert")):
        label = "next_sentence_label" if name.startswith("bert") else "sentence_order_label"
        pair = {label: batch["next_sentence_label"]} if "next_sentence_label" in batch else {}
        return lambda: (
            net(
                input_ids=batch["input_ids"], token_type_ids=batch["token_type_ids"], labels=label_BS, **mask, **pair
            ).loss
        )
    if name.startswith("gpt2"):
        ids_BS = torch.cat([batch["input_ids"], label_BS[:, -1:]], dim=1)  # the model shifts the labels itself
        return lambda: net(input_ids=ids_BS, labels=ids_BS).loss
    if name.startswith("t5"):
        source = {"input_ids": batch["source_input_ids"], "attention_mask": inside(batch, "source_")}
        return lambda: net(**source, decoder_input_ids=batch["input_ids"], labels=label_BS).loss
    if name.startswith("xlnet"):
        return _xlnet_loss(net, batch)
    return _electra_loss(nets, batch, label_BS, mask)


def _xlnet_loss(net: Any, batch: dict[str, Tensor]) -> Callable[[], Tensor]:
    rank_BS, reach_BS = batch["rank"], batch["reach"]
    rows, length = batch["input_ids"].shape
    hidden_BSS = (rank_BS[:, None, :] > reach_BS[:, :, None]).float()
    num = len(batch["targets"]) // rows
    at_BM = batch["targets_at"].view(rows, num) % length
    mapping_BMS = F.one_hot(at_BM, length).float()
    target_BM = batch["targets"].view(rows, num)
    return lambda: (
        net(
            input_ids=batch["input_ids"],
            perm_mask=hidden_BSS,
            target_mapping=mapping_BMS,
            labels=target_BM,
            use_mems=False,
        ).loss
    )


def _electra_loss(
    nets: Sequence[Any], batch: dict[str, Tensor], label_BS: Tensor, mask: dict[str, Tensor]
) -> Callable[[], Tensor]:
    """The loss of ELECTRA: of the generator, plus 50 times that of the discriminator on samples of the generator."""
    discriminator, generator = nets
    masked_BS = label_BS != IGNORE

    def loss() -> Tensor:
        common = mask | {"token_type_ids": batch["token_type_ids"]}
        output = generator(input_ids=batch["input_ids"], labels=label_BS, **common)
        with torch.no_grad():
            noise = torch.rand_like(output.logits[masked_BS]).log_().neg_().log_().neg_()
            sample_M = (output.logits[masked_BS] + noise).argmax(-1)
        original_BS = torch.where(masked_BS, label_BS, batch["input_ids"])
        seen_BS = original_BS.masked_scatter(masked_BS, sample_M)
        replaced_BS = (seen_BS != original_BS).long()
        return output.loss + 50 * discriminator(input_ids=seen_BS, labels=replaced_BS, **common).loss

    return loss


def theirs(recipe: Recipe, model: Model, vocab_dir: Path, folder: Path) -> list[Any]:
    """The models of transformers with the weights of Sesame's model."""
    import transformers

    transformers.logging.set_verbosity_error()
    to_transformers({name: weight.detach() for name, weight in model.named_parameters()}, model.spec, vocab_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    net = getattr(transformers, config["architectures"][0]).from_pretrained(folder).train()
    if recipe.model.kind != "generator_discriminator":
        return [net]
    small = transformers.ElectraConfig(**config | _generator(recipe))
    generator = transformers.ElectraForMaskedLM(small).train()
    generator.electra.embeddings = net.electra.embeddings
    generator.generator_lm_head.weight = net.electra.embeddings.word_embeddings.weight
    return [net, generator]


def _generator(recipe: Recipe) -> dict[str, int]:
    """Sizes of ELECTRA's generator: its hidden size, heads of size 64, intermediate size 4 x hidden size."""
    assert recipe.model.kind == "generator_discriminator"
    width = round(recipe.model.generator_size_ratio * recipe.model.hidden_size)
    sizes = {"hidden_size": width, "num_attention_heads": max(1, width // 64), "intermediate_size": 4 * width}
    return sizes | {"embedding_size": recipe.model.table_width}


class Comparison(NamedTuple):
    """Median seconds of both systems, the median ratio of theirs to ours, and the losses of the last round."""

    mine: float
    its: float
    ratio: float
    my_loss: float
    its_loss: float


def turns(ours: Step, other: Step, rounds: int, clock: Callable[[], float] = perf_counter) -> Comparison:
    """Compare both systems over several rounds. The first step of each is discarded."""
    seconds: list[tuple[float, float]] = []
    loss = {}
    for turn in range(rounds + 1):
        took = {}
        for name, step in sorted({"ours": ours, "other": other}.items(), reverse=turn % 2 == 1):
            start = clock()
            loss[name] = step()
            took[name] = clock() - start
        if turn:
            seconds.append((took["ours"], took["other"]))
    mine, its = zip(*seconds, strict=True)
    return Comparison(median(mine), median(its), median(it / my for my, it in seconds), loss["ours"], loss["other"])


def compare(
    name: str,
    num_rows: int,
    length: int,
    rounds: int,
    pairs: Path | None,
    scale: str = "",
    precision: str = "fp32",
    clock: str = "wall",
) -> dict[str, Any]:
    """Times and speeds of both systems for a recipe."""
    recipe = load(name, scale=scale)
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room)
        vocab = small_vocab(recipe, folder / "vocab")
        model = Model(recipe.model, recipe.losses, vocabularies.table_rows(recipe.data.tokenizer), seed=0).train()
        rows = real(recipe, pairs, num_rows, length) if pairs else made_up(recipe, vocab, num_rows, length)
        nets = theirs(recipe, model, folder / "vocab", folder / "theirs")
    dense, flat = tensors(collate_padded(rows, length, vocab.pad or 0)), tensors(collate_unpadded(rows))
    weights: dict[str, float] = {loss.kind: loss.weight for loss in recipe.losses}
    for net in (model, *nets):
        net.to(PRECISIONS[precision])
    ours, other = our_step(model, flat, weights), their_step(nets, their_loss(name, nets, dense))
    result = turns(ours, other, rounds, CLOCKS[clock])
    tokens = sum(len(row["input_ids"]) + len(row.get("source_input_ids", ())) for row in rows)
    return {
        "recipe": recipe.name,
        "precision": precision,
        "rows": num_rows,
        "length": length,
        "tokens": tokens,
        "sesame_s": result.mine,
        "transformers_s": result.its,
        "sesame_tokens_per_s": tokens / result.mine,
        "transformers_tokens_per_s": tokens / result.its,
        "ratio": result.ratio,
        "sesame_loss": result.my_loss,
        "transformers_loss": result.its_loss,
    }


def real(recipe: Recipe, corpus: Path, num_rows: int, length: int) -> list[Row]:
    """The first sequences of a corpus in training order."""
    store = TokenStore.open(corpus, "train")
    rows = ExampleDataset(store, Vocab.load(store.vocab_dir), replace(recipe.sampling, seed=0), length)
    return [rows.row(epoch, sample) for epoch, sample in rows.addresses(0, num_rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"recipes [{' '.join(NAMES)}]")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=Path, metavar="CORPUS", help="use segment pairs of this corpus, with bert_base")
    parser.add_argument("--scale", default="", metavar="SCALE", help="shrink the recipes: tiny or small")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="precision of both systems [fp32]")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="with one thread, also the CPU time [wall]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = args.names or (("bert_base",) if args.pairs else NAMES)
    settings = (args.rows, args.length, args.rounds, args.pairs, args.scale, args.precision, args.clock)
    found = [compare(name, *settings) for name in names]
    if args.json:
        print(json.dumps(found, indent=1))
        return
    columns = ("rows", "length", "tokens", "Sesame s", "theirs s", "tokens/s", "theirs", "ratio", "loss", "theirs")
    print(f"{'':14}" + "".join(f"{column:>10}" for column in columns))
    for one in found:
        sizes = "".join(f"{one[name]:10}" for name in ("rows", "length", "tokens"))
        times = f"{one['sesame_s']:10.3f}{one['transformers_s']:10.3f}"
        losses = f"{one['sesame_loss']:10.3f}{one['transformers_loss']:10.3f}"
        speeds = f"{one['sesame_tokens_per_s']:10.0f}{one['transformers_tokens_per_s']:10.0f}"
        print(f"{one['recipe']:14}{sizes}{times}{speeds}{one['ratio']:10.2f}{losses}")


if __name__ == "__main__":
    main()
