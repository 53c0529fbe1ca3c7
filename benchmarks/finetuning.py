"""Time of fine-tuning: Sesame and the Trainer of transformers, with the same model, examples and cores.

    python benchmarks/finetuning.py --data-dir DIR [NAME ...] [--rows 256] [--rounds 5] [--json]    # glue/SST-2 in DIR

A BERT of the size NAME (tiny, mini, small, base; random weights) is fine-tuned for one epoch on examples of SST-2, in
batches of 32, in float32, with dropout and gradient clipping. It then predicts the labels of the same examples. The
Trainer has usual settings: a collator that pads to the longest sequence of a batch, default attention and AdamW. It
does not evaluate, log or save during training. The examples are tokenized before the measurement.

The two systems run alternately. Times are medians over the rounds, and the ratio is the median of the ratios of the
rounds: above 1, Sesame is faster. The Trainer needs the package `accelerate`, which Sesame does not need.
"""

import argparse
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch

from orchestration.config import load_task
from preprocessing.tokenization import WordPiece, train
from training.engines import LocalEngine
from training.evaluation.eval_result import EvaluatedModel
from training.evaluation.tasks import Classification, TaskFile
from training.finetuning import Example, TaskModel, Tuning, groups, outputs, train_head
from training.formats import to_transformers
from training.losses import MaskedTokens
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Encoder, EngineSettings, LearnedPositions

SIZES: Final[Mapping[str, tuple[int, int]]] = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "base": (12, 768)}
TUNING: Final = Tuning(learning_rate=5e-5, batch_size=32, epochs=1)
ROWS_OF_TABLE: Final = 30_522
Times = tuple[float, float]  # seconds of training and of prediction


def net_of(size: str, texts: Sequence[str]) -> EvaluatedModel:
    """A model with random weights and the published vocabulary size, and a tokenizer trained on these texts."""
    layers, width = SIZES[size]
    trunk = Encoder(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        position_embedding=LearnedPositions(max_position_embeddings=512),
    )
    spec = ModelSpec(model=trunk, losses=(MaskedTokens(),), vocab_size=ROWS_OF_TABLE)
    weights = dict(Model(spec.model, spec.losses, spec.vocab_size, seed=0).named_parameters())
    return EvaluatedModel(spec, weights, train(WordPiece(vocab_size=8_000), texts))


def classification(file: TaskFile) -> Classification:
    assert isinstance(file.task, Classification)
    return file.task


def ours(net: EvaluatedModel, examples: Sequence[Example], machine: EngineSettings) -> Times:
    """The times of Sesame."""
    model = TaskModel(net.spec.model, classification(load_task("sst2")).targets(), net.spec.vocab_size, seed=0)
    assert net.weights is not None
    model.take_over(net.weights)
    engine = LocalEngine(model, TUNING.optim(TUNING.num_steps(len(examples))), machine, groups(model, TUNING))
    start = perf_counter()
    train_head(engine, examples, TUNING, machine.micro_tokens)
    trained = perf_counter()
    assert sum(len(numbers) for numbers, _ in outputs(model, examples, torch.device("cpu"))) == len(examples)
    return trained - start, perf_counter() - trained


def theirs(folder: Path, examples: Sequence[Example]) -> Times:
    """The times of the Trainer."""
    import transformers as hf

    net = hf.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    rows = [
        {
            "input_ids": row["input_ids"].tolist(),
            "token_type_ids": row["token_type_ids"].tolist(),
            "labels": int(row["label"]),
        }
        for (row,) in examples
    ]
    about = hf.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=TUNING.batch_size,
        per_device_eval_batch_size=TUNING.batch_size,
        num_train_epochs=TUNING.epochs,
        learning_rate=TUNING.learning_rate,
        weight_decay=TUNING.weight_decay,
        warmup_steps=TUNING.warmup_ratio,
        max_grad_norm=TUNING.max_grad_norm,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = hf.Trainer(
        net, about, train_dataset=rows, data_collator=hf.DataCollatorWithPadding(tokenizer), processing_class=tokenizer
    )
    start = perf_counter()
    trainer.train()
    trained = perf_counter()
    assert len(trainer.predict(rows).predictions) == len(examples)
    return trained - start, perf_counter() - trained


def turns(mine: Callable[[], Times], other: Callable[[], Times], rounds: int) -> list[tuple[Times, Times]]:
    """The times of both systems in each round. Their order changes between rounds; the first round is discarded."""
    found = []
    for turn in range(rounds + 1):
        took = {}
        for name, run in sorted({"ours": mine, "other": other}.items(), reverse=turn % 2 == 1):
            took[name] = run()
        if turn:
            found.append((took["ours"], took["other"]))
    return found


def compare(size: str, data: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Median times of both systems, and the median ratio, for a model of this size."""
    task = load_task("sst2")
    items = task.items("train", data)[0][:rows]
    net = net_of(size, [item.texts[0] for item in items])
    examples = classification(task).encode(items, net.vocab, task.max_seq_length, training=True).examples
    machine = EngineSettings(cpu_threads=torch.get_num_threads())
    with tempfile.TemporaryDirectory() as room:
        net.vocab.save(Path(room) / "vocab")
        assert net.weights is not None
        to_transformers(net.weights, net.spec, Path(room) / "vocab", Path(room) / "theirs")
        found = turns(lambda: ours(net, examples, machine), lambda: theirs(Path(room) / "theirs", examples), rounds)
    kinds = {"training": 0, "answers": 1}
    times = {
        name: {
            "sesame_s": median(mine[at] for mine, _ in found),
            "trainer_s": median(other[at] for _, other in found),
            "ratio": median(other[at] / mine[at] for mine, other in found),
        }
        for name, at in kinds.items()
    }
    return {"size": size, "rows": len(examples), "tokens": sum(len(row["input_ids"]) for (row,) in examples), **times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"sizes of the model: {' '.join(SIZES)} [mini]")
    parser.add_argument("--data-dir", type=Path, required=True, help="directory with glue/SST-2")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore")
    found = [compare(name, args.data_dir, args.rows, args.rounds) for name in args.names or ["mini"]]
    if args.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'':8}{'rows':>7}{'tokens':>9}" + "".join(f"{name:>14}" for name in ("Sesame s", "Trainer s", "ratio")))
    for one in found:
        for kind in ("training", "answers"):
            times = one[kind]
            sizes = f"{one['size']:8}{one['rows']:7}{one['tokens']:9}"
            print(f"{sizes}{times['sesame_s']:14.2f}{times['trainer_s']:14.2f}{times['ratio']:14.2f}  {kind}")


if __name__ == "__main__":
    main()
