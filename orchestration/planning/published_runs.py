"""Published runs with their time or cost, compared with the prediction of `plan`: how reliable the prediction is.

The prediction is not fitted to any of these runs; timed_steps.py has steps of Sesame itself. The prediction assumes
kernels of the time of the run: before 2022, attention scores are in memory. For the first BERT models, it assumes the
head of Sesame, which computes masked tokens only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestration.config import load
from orchestration.planning.devices import DEVICES
from orchestration.planning.layout import ParallelLayout
from orchestration.planning.overheads import ROOFLINE
from orchestration.planning.run_estimate import HOUR
from orchestration.planning.search import layout_in_phase
from orchestration.planning.timing import step_seconds
from orchestration.planning.workload import workload_of


@dataclass(frozen=True)
class PublishedRun:
    """A run as its authors report it. `hours` are of the whole run, or of one step if `of_step` is set."""

    name: str
    recipe: str
    device: str
    layout: ParallelLayout
    hours: float
    source: str
    overrides: tuple[str, ...] = ()
    usd: float = 0.0  # published cost in US dollars; 0: not published
    scores_in_memory: bool = True  # whether attention has no fused kernel
    of_step: bool = False
    note: str = ""


def _data(workers: int, rows: int, **more: Any) -> ParallelLayout:
    return ParallelLayout(data=workers, zero=0, rows=rows, **more)


def _steps(length: int, batch: int, steps: int) -> str:
    return f'phases=[{{"seq_length": {length}, "global_batch_size": {batch}, "steps": {steps}}}]'


_TWO_LENGTHS: Final = (
    "phases=[{seq_length: 128, global_batch_size: 256, steps: 900000}, "
    "{seq_length: 512, global_batch_size: 256, steps: 100000}]"
)
_GIANT: Final[dict[str, Any]] = {"zero": 1, "rows": 1, "checkpointing": "full"}
RUNS: Final[Sequence[PublishedRun]] = (
    PublishedRun(
        *("BERT base", "bert_base", "tpu_v2", _data(16, 16), 96, "arXiv:1810.04805, A.2: 4 Cloud TPUs; cost: slides"),
        usd=500,
        note="reaches a tenth of the peak; the reason is not published",
    ),
    PublishedRun(
        *("BERT large", "bert_large", "tpu_v2", _data(64, 4), 96, "arXiv:1810.04805, A.2: 16 Cloud TPUs; cost: slides"),
        usd=7_000,
        note="as BERT base, with 4 sequences per chip; the cost is more than that of 64 chips at the list price",
    ),
    PublishedRun(
        *("BERT base, V100", "bert_base", "v100", _data(8, 32), 288, "slides: 8 V100, 12 days"),
        note="precision not published; float32, without tensor cores, has an eighth of the peak",
    ),
    PublishedRun(
        "BERT large, V100", "bert_large", "v100", _data(256, 1), 24, "slides: 280 V100, one day (256 counted)"
    ),
    PublishedRun(
        *("ALBERT large", "albert_large", "v100", _data(256, 1), 24 / 1.7, "arXiv:1909.11942, table 2, and slides"),
        overrides=(_TWO_LENGTHS, "optimizer.lr_decay_steps=0", "optimizer.warmup_steps=10000"),
        note="published: 1.7 times the speed of BERT large, with larger batches. Here both have 1 sequence per device. "
        "BERT large then mostly reduces gradients, of which ALBERT has few",
    ),
    PublishedRun(
        *("RoBERTa large", "roberta_large", "v100", _data(1024, 8), 24, "arXiv:1907.11692, 5: 1,024 V100, about a day"),
        overrides=(_steps(512, 8_192, 100_000), "optimizer.warmup_steps=1000"),
        note="the first 100,000 steps; reaches a twelfth of the peak, and the reason is not published",
    ),
    PublishedRun(
        *("DistilBERT", "bert_base", "v100_16gb", _data(8, 32), 90, "arXiv:1910.01108, 3: 8 V100 of 16 GB, 90 hours"),
        overrides=("model.num_hidden_layers=6", _steps(512, 4_096, 6_300), "optimizer.warmup_steps=100"),
        note="three epochs of 4.4e9 tokens, as in its code; the teacher, two thirds of the student's work, is not "
        "counted; precision not published",
    ),
    PublishedRun(
        *("BERT in 44 minutes", "bert_large_lamb", "v100", _data(1024, 64), 44 / 60, "DeepSpeed 2020: 1,024 V100"),
        note="fused kernels, 64 and 53 TFLOP/s published",
    ),
    PublishedRun(
        *("BERT base, Composer", "bert_base", "a100", _data(8, 256), 11.5, "mosaicml/examples, README: 8 A100"),
        overrides=(_steps(128, 4_096, 70_000), "masking.rate=0.3", "optimizer.warmup_steps=1000"),
        note="the model of transformers, unfused; its head computes all tokens, not only masked ones",
    ),
    PublishedRun(
        *("MosaicBERT base", "bert_base", "a100", _data(8, 256), 11.5 / 3, "the same: roughly a third of the time"),
        overrides=(_steps(128, 4_096, 70_000), "masking.rate=0.3", "optimizer.warmup_steps=1000"),
        scores_in_memory=False,
        note="a model with linear attention biases, gated units and no padding; counted as BERT base",
    ),
    PublishedRun(
        *("GPT-2 124M, llm.c", "gpt2", "a100", _data(8, 64), 1.5, "llm.c: 10e9 tokens, 8 A100, 90 minutes"),
        overrides=(_steps(1_024, 512, 19_073), "optimizer.warmup_steps=700"),
        usd=20,
        scores_in_memory=False,
    ),
    PublishedRun(
        *("GPT-2 1.5B, llm.c", "gpt2_xl", "h100", _data(8, 16), 24, "llm.c: 33.6e9 tokens, 8 H100, 24 hours, $672"),
        overrides=(_steps(1_024, 1_024, 32_000), "optimizer.warmup_steps=700"),
        usd=672,
        scores_in_memory=False,
    ),
    PublishedRun(
        *("GPT of 26 layers, nanochat", "gpt2", "h100", _data(8, 32), 3.04, "nanochat: 8 H100, 4.33e19 FLOPs, $73"),
        overrides=(
            *(
                "model.num_hidden_layers=26",
                "model.hidden_size=1664",
                "model.num_attention_heads=13",
                "model.position_embedding.max_position_embeddings=2048",
            ),
            *(_steps(2_048, 256, 13_350), "optimizer.warmup_steps=100"),
        ),
        usd=73,
        scores_in_memory=False,
        note="counted as GPT-2 of these sizes, with the same number of FLOPs",
    ),
    PublishedRun(
        *("Megatron 8.3B", "megatron_8b", "v100", ParallelLayout(data=64, tensor=8, **_GIANT | {"rows": 8})),
        *(512 * 1024 * 72 * 8.32e9 / 9 / 15.1e15 / HOUR, "arXiv:1909.08053: 15.1 PFLOP/s on 512 V100"),
        of_step=True,
        note="time of one step, computed from its FLOPs with recomputation",
    ),
    PublishedRun(
        *("GPT-3 175B", "gpt3_175b", "a100", ParallelLayout(data=16, tensor=8, pipeline=8, **_GIANT)),
        *(34 * 24, "arXiv:2104.04473, 5.1: 300e9 tokens on 1,024 A100"),
        overrides=(_steps(2_048, 1_536, 95_367), "optimizer.lr_decay_steps=79346"),
    ),
    *(
        PublishedRun(
            *(
                f"MT-NLG 530B, {280 * data:,}",
                "mt_nlg_530b",
                "a100",
                ParallelLayout(data=data, tensor=8, pipeline=35, **_GIANT),
            ),
            *(step_s / HOUR, "arXiv:2201.11990, 2.3: batch of 1,920"),
            of_step=True,
            note="time of one step",
        )
        for data, step_s in ((8, 60.1), (10, 50.2), (12, 44.4))
    ),
    PublishedRun(
        *("XLNet large", "xlnet_large", "tpu_v3", _data(512, 16), 132, "arXiv:1906.08237v2: 512 TPU v3, 5.5 days"),
        note="the $30,000 to $60,000 of the slides are for the first version, with a batch of 2,048",
    ),
    PublishedRun(
        *("Grover mega", "grover_mega", "tpu_v3", _data(128, 4), 336, "arXiv:1905.12616: 256 cores, two weeks"),
        usd=25_000,
        note="the cost is less than half of the list price",
    ),
)


@dataclass(frozen=True)
class ComparedRun:
    """A published run with its prediction."""

    run: PublishedRun
    parameters: int
    layers: int
    tokens: int
    corpus: str
    hours: float  # predicted
    usd: float  # predicted
    mfu: float  # from the published time: FLOPs of the model as a fraction of the 16-bit peak of the devices

    @property
    def ratio(self) -> float:
        """Predicted time divided by published time."""
        return self.hours / self.run.hours

    def values(self) -> dict[str, Any]:
        """Values as plain types."""
        return {
            "run": self.run.name,
            "parameters": self.parameters,
            "layers": self.layers,
            "corpus": self.corpus,
            "tokens": self.tokens,
            "devices": f"{self.run.layout.devices} x {self.run.device}",
            "published_hours": self.run.hours,
            "predicted_hours": self.hours,
            "ratio": self.ratio,
            "published_usd": self.run.usd or None,
            "predicted_usd": self.usd,
            "published_mfu": self.mfu,
            "source": self.run.source,
            "note": self.run.note,
        }


def compare_published_runs(runs: Sequence[PublishedRun] = RUNS) -> Iterator[ComparedRun]:
    """Each run with its prediction."""
    for run in runs:
        recipe = load(run.recipe, run.overrides)
        demand, device = workload_of(recipe), DEVICES[run.device]
        total = flops = 0.0
        for phase in recipe.phases:
            layout = layout_in_phase(run.layout, demand, phase)
            of_step = step_seconds(
                demand,
                layout,
                device,
                phase.seq_length,
                phase.global_batch_size,
                scores_in_memory=run.scores_in_memory,
                code=ROOFLINE,
            )
            total += of_step.total * (1 if run.of_step else phase.steps)
            flops += demand.flops(phase.global_batch_size, phase.seq_length) * (1 if run.of_step else phase.steps)
        yield ComparedRun(
            run,
            demand.parameters,
            recipe.model.num_hidden_layers,
            recipe.num_tokens,
            recipe.data.corpus,
            total / HOUR,
            total / HOUR * run.layout.devices * device.price,
            flops / (HOUR * run.hours * run.layout.devices * device.peak(run.layout.precision)),
        )
