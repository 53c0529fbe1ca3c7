"""RoBERTa: four formats of rows; Adam's epsilon and beta2."""

from typing import Final

from orchestration.reports.ablations.ablation import Ablation, AblationRow, DifferentClaim, LowerClaim, Measure

_PAPER: Final = "RoBERTa, Liu et al. 2019, arXiv:1907.11692"
_PAIRS: Final = ("SEGMENT-PAIR", "SENTENCE-PAIR")
_BY_TOKENS: Final = ("phases.0.batch_unit=token",)  # short rows make larger batches, section 4.2

ROBERTA_FORMATS: Final = Ablation(
    name="roberta-formats",
    title="Four formats of rows, with and without next sentence prediction",
    paper=f"{_PAPER}, table 2",
    stub="format",
    rows={
        "SEGMENT-PAIR": AblationRow(
            recipe="roberta_segment_pair",
            paper={"SQuAD 1.1": 90.4, "SQuAD 2": 78.7, "MNLI-m": 84.0, "SST-2": 92.9, "RACE": 64.2},
        ),
        "SENTENCE-PAIR": AblationRow(
            recipe="roberta_sentence_pair",
            overrides=_BY_TOKENS,
            paper={"SQuAD 1.1": 88.7, "SQuAD 2": 76.2, "MNLI-m": 82.9, "SST-2": 92.1, "RACE": 63.0},
        ),
        "FULL-SENTENCES": AblationRow(
            recipe="roberta_full_sentences",
            paper={"SQuAD 1.1": 90.4, "SQuAD 2": 79.1, "MNLI-m": 84.7, "SST-2": 92.5, "RACE": 64.8},
        ),
        "DOC-SENTENCES": AblationRow(
            recipe="roberta_doc_sentences",
            overrides=_BY_TOKENS,
            paper={"SQuAD 1.1": 90.6, "SQuAD 2": 79.7, "MNLI-m": 84.7, "SST-2": 92.7, "RACE": 65.6},
        ),
    },
    columns={
        "MLM": Measure(
            kind="masked", of="DOC-SENTENCES", means="masked-token accuracy, in consecutive sentences of a document"
        ),
        "loss": Measure(kind="loss", of="DOC-SENTENCES", means="loss of a masked token there"),
        "next_sentence": Measure(
            kind="task", of="next_sentence", means="fine-tuned: does the second sentence follow the first?"
        ),
    },
    claims=(
        *(
            LowerClaim(column, ("SENTENCE-PAIR",), ("SEGMENT-PAIR", "FULL-SENTENCES", "DOC-SENTENCES"))
            for column in ("MLM", "next_sentence")
        ),
        *(
            LowerClaim(column, ("SEGMENT-PAIR",), ("FULL-SENTENCES", "DOC-SENTENCES"))
            for column in ("MLM", "next_sentence")
        ),
        *(LowerClaim(column, ("FULL-SENTENCES",), ("DOC-SENTENCES",)) for column in ("MLM", "next_sentence")),
    ),
    varies=("data.packing", "losses", "model.type_vocab_size", "phases.0.batch_unit"),
    vocab="data.tokenizer.vocab_size=1_000",  # each word is a piece
    budget={"tiny": ("phases=[{seq_length: 64, global_batch_size: 32, steps: 2_000}]",)},
    note="Pairs come with next sentence prediction, as in the paper. The task here, whether a sentence follows another "
    "one, is what that objective trains; the paper's five tasks are not.",
)

_EPSILONS: Final = ("1e-8", "1e-6", "1e-4", "1e-2")
_BETAS: Final = ("0.98", "0.999")


def _label(epsilon: str, beta2: str) -> str:
    return f"{epsilon} / {beta2}"


ADAM_EPS: Final = Ablation(
    name="adam-eps",
    title="Adam's epsilon and beta2",
    paper=f"{_PAPER}, section 3.1, which prints no figures; table 9 has what it chose: 1e-6 and 0.98",
    stub="epsilon / beta2",
    rows={
        _label(epsilon, beta2): AblationRow(
            recipe="roberta_base", overrides=(f"optimizer.eps={epsilon}", f"optimizer.beta2={beta2}")
        )
        for beta2 in _BETAS
        for epsilon in _EPSILONS
    },
    columns={
        "loss": Measure(kind="loss", of=_label("1e-6", "0.98"), means="loss of a masked token of held-out text"),
        "rise": Measure(kind="rise", means="how far the training loss rose above its lowest value so far, at the most"),
    },
    claims=(
        *(DifferentClaim("loss", 0.1, tuple(_label(epsilon, beta2) for epsilon in _EPSILONS)) for beta2 in _BETAS),
        *(LowerClaim("rise", (_label(epsilon, "0.98"),), (_label(epsilon, "0.999"),)) for epsilon in ("1e-8", "1e-6")),
    ),
    varies=("optimizer.eps", "optimizer.beta2"),
    text="demo",
    budget={"tiny": ("phases=[{seq_length: 64, global_batch_size: 32, steps: 1_500}]",)},
    note="The paper says that training is very sensitive to epsilon, read here as losses that differ by more than 0.1 "
    "nats, and that beta2 = 0.98 makes large batches more stable, read here as a loss that rises less. Our batches are "
    "small ones.",
)
