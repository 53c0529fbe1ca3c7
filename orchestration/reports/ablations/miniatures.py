"""BERT's miniatures: loss and scores by the size of the model."""

from typing import Final

from orchestration.reports.ablations.ablation import Ablation, AblationRow, Curve, Measure, ladder

_SIZES: Final = {  # layers, hidden size, heads, and results in the README: GLUE test, best of 20 fine-tunings
    "tiny": (2, 128, 2, {"GLUE": 64.2, "SST-2": 83.2, "MNLI-m": 70.2, "QNLI": 81.5}),
    "mini": (4, 256, 4, {"GLUE": 65.8, "SST-2": 85.9, "MNLI-m": 74.8, "QNLI": 84.1}),
    "small": (4, 512, 8, {"GLUE": 71.2, "SST-2": 89.7, "MNLI-m": 77.6, "QNLI": 86.4}),
    "medium": (8, 512, 8, {"GLUE": 73.5, "SST-2": 89.6, "MNLI-m": 80.0, "QNLI": 87.7}),
}
_PARAMETERS: Final = {"tiny": 4_385_920, "mini": 11_170_560, "small": 28_763_648, "medium": 41_373_184}  # with pooler


def _row(name: str) -> AblationRow:
    layers, width, heads, paper = _SIZES[name]

    def size(divisor: int) -> tuple[str, ...]:
        return (
            f"model.num_hidden_layers={layers}",
            f"model.hidden_size={width // divisor}",
            f"model.num_attention_heads={heads}",
        )

    return AblationRow(recipe=f"bert_{name}", sizes={"tiny": size(4), "small": size(2)}, line="BERT", paper=paper)


SIZE_LADDER: Final = Ablation(
    name="size-ladder",
    title="The size of the model",
    paper="BERT miniatures, Turc et al. 2019, arXiv:1908.08962; README of google-research/bert (March 2020)",
    stub="BERT",
    rows={name: _row(name) for name in _SIZES},
    columns={
        "loss": Measure(kind="loss", of="tiny", means="mean loss of the masked tokens in held-out text"),
        "MLM": Measure(kind="masked", of="tiny", means="masked-token accuracy"),
        "NSP": Measure(kind="pairs", of="tiny", means="a linear probe: is the second segment from another document?"),
    },
    claims=(*ladder("loss", list(_SIZES)[::-1]), *ladder("NSP", list(_SIZES))),
    varies=("model.num_hidden_layers", "model.hidden_size", "model.num_attention_heads"),
    text="demo",
    # with the learning rate of the scale, 3e-3, the two widest models learn only the frequencies of words
    budget={
        "tiny": (
            "phases=[{seq_length: 64, global_batch_size: 32, steps: 2_000}]",
            "optimizer.learning_rate=1e-3",
            "model.init_std=0.05",
        )
    },
    facts=("parameters",),
    axis="parameters",
    theirs="GLUE (test)",
    curves=(Curve(name="BERT", points=tuple((_PARAMETERS[name], _SIZES[name][3]["GLUE"]) for name in _SIZES)),),
    note="Layers and heads are as in the paper. Hidden sizes are a quarter of the paper's at tiny scale, and half at "
    "small scale.",
)
