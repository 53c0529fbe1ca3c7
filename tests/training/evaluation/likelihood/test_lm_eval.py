"""lm-eval scores the model of transformers with the same weights, on local files, with the same results for each item.

lm-eval is not a dependency: `make witness` runs this test, with lm-eval 0.4.13.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestration.config import load_task
from preprocessing.tokenization import ByteLevelBPE, Vocab, vocab_from_file
from tests.training.parity import built, loaded, weights
from training.evaluation.files import Record
from training.evaluation.likelihood.models import score_causal
from training.evaluation.tasks import LoglikelihoodChoice, TaskItem
from training.formats import to_transformers
from training.losses import NextToken
from training.model import Model
from training.model_spec import ModelSpec
from training.specs import Decoder, LearnedPositions

pytestmark = [pytest.mark.shared, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS = 200
TRUNK = Decoder(
    num_hidden_layers=2,
    hidden_size=64,
    num_attention_heads=4,
    position_embedding=LearnedPositions(max_position_embeddings=256),
)
TASKS: dict[str, dict[str, Any]] = {  # shipped task -> the same in the keys of lm-eval
    "blimp": {"doc_to_text": "", "doc_to_target": 0, "doc_to_choice": "{{[sentence_good, sentence_bad]}}"},
    "lambada": {
        "output_type": "loglikelihood",
        "doc_to_text": "{{context}}",
        "doc_to_target": "{{' '+continuation}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "piqa": {"doc_to_text": "{{query}}Answer:", "doc_to_target": "{{gold}}", "doc_to_choice": "{{choices}}"},
    "arc_easy": {"doc_to_text": "{{query}}\nAnswer:", "doc_to_target": "{{gold}}", "doc_to_choice": "{{choices}}"},
    "boolq": {"doc_to_text": "{{query}}\nAnswer:", "doc_to_target": "{{gold}}", "doc_to_choice": "{{choices}}"},
}
OURS_BY_THEIRS = {"accuracy": "acc", "accuracy_character": "acc_norm", "accuracy_byte": "acc_bytes"}


@pytest.fixture(scope="module")
def net(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Vocab, Path]:
    """A random GPT-2 with GPT-2's vocabulary, and its directory for transformers."""
    folder = tmp_path_factory.mktemp("net")
    vocab = vocab_from_file(ByteLevelBPE(path=str(shared / "tokenizers/gpt2-roberta")))
    model = built(ModelSpec(model=TRUNK, losses=(NextToken(),), vocab_size=vocab.size))
    vocab.save(folder / "vocab")
    (folder / "net").mkdir()
    to_transformers(weights(model), model.spec, folder / "vocab", folder / "net")
    return model, vocab, folder / "net"


def sample_items(name: str, data: Path) -> tuple[LoglikelihoodChoice, Sequence[TaskItem], Sequence[Record]]:
    """A shipped task with the metrics of lm-eval, some items spaced evenly over its files, and their records."""
    task = load_task(name)
    assert isinstance(task.task, LoglikelihoodChoice)
    items, records = task.items("test" if "test" in task.files else "dev", data)
    kind = task.task if "last_word" in task.task.metrics else replace(task.task, metrics=tuple(OURS_BY_THEIRS))
    each = len(items) // ROWS
    return kind, items[::each][:ROWS], records.rows[::each][:ROWS]


def theirs(folder: Path, tasks: Path, name: str, keys: dict[str, Any]) -> Any:
    """The results of lm-eval for the file of a task in this directory."""
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer

    config = {
        "task": f"local_{name}",
        "dataset_path": "json",
        "dataset_kwargs": {
            "data_files": {"validation": str(tasks / "rows.jsonl")},
            "cache_dir": str(tasks / "cache"),
        },
        "output_type": "multiple_choice",
        "validation_split": "validation",
        "metric_list": [{"metric": metric} for metric in OURS_BY_THEIRS.values()],
        "metadata": {"version": 1.0},
    } | keys
    (tasks / "task.yaml").write_text(json.dumps(config))
    model = HFLM(
        pretrained=loaded(folder), tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=16, device="cpu"
    )
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return lm_eval.simple_evaluate(
        model, tasks=[config["task"]], task_manager=manager, log_samples=True, bootstrap_iters=0
    )


@pytest.mark.parametrize("name", TASKS)
def test_items_have_the_log_probabilities_of_lm_eval(
    name: str, net: tuple[Model, Vocab, Path], shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    task, items, rows = sample_items(name, shared / "downstream")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = theirs(net[2], tmp_path, name, TASKS[name])
    asked = task.make_requests(items)
    chosen = task.score_choices(asked, lambda requests: score_causal(net[0], net[1], requests))
    samples = sorted(found["samples"][f"local_{name}"], key=lambda sample: sample["doc_id"])
    samples = list({sample["doc_id"]: sample for sample in samples}.values())  # one sample for each filter
    assert len(samples) == len(items) == ROWS
    wanted = [resp[0] for sample in samples for resp in sample["resps"]]
    got = [option for each in chosen for option in each.options]
    assert [tuple(map(str, request)) for request in asked.requests] == [
        tuple(arguments) for sample in samples for arguments in requests_of(sample["arguments"])
    ]
    off = max(abs(float(nats) - each.nats) for (nats, _), each in zip(wanted, got, strict=True))
    print(f"{name}: {len(got)} requests, {sum(e.cut > 0 for e in got)} cut, largest difference {off:.1e}")
    assert off < 1e-3
    assert [greedy in (True, "True") for _, greedy in wanted] == [each.greedy for each in got]
    scores, results = task.scores(items, chosen), found["results"][f"local_{name}"]
    for ours, metric in OURS_BY_THEIRS.items():
        if ours in task.metrics and not scores["ties"]:
            assert scores[ours] == pytest.approx(results[f"{metric},none"], abs=1e-9)
    if "last_word" in task.metrics:
        assert scores["last_word"] == results["acc,none"]


def requests_of(arguments: Any) -> Iterable[tuple[str, str]]:
    """The requests of a sample, which lm-eval gives as pairs or by names."""
    if isinstance(arguments, dict):
        return [(each["arg_0"], each["arg_1"]) for each in arguments.values()]
    return [(each[0], each[1]) for each in arguments]
