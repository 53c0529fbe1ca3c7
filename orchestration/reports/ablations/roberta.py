"""RoBERTa's tables: four sequence formats; Adam's epsilon and beta2."""

from typing import Final

from orchestration.reports.ablations.ablation import Ablation, AblationRow, DifferentClaim, LowerClaim, Measure

_PAPER: Final = "RoBERTa, Liu et al. 2019, arXiv:1907.11692"
_PAIRS: Final = ("SEGMENT-PAIR", "SENTENCE-PAIR")
_BY_TOKENS: Final = ("phases.0.batch_unit=token",)  # equally many tokens in each batch, section 4.2

ROBERTA_FORMATS: Final = Ablation(
    name="roberta-formats",
    title="Four sequence formats, with and without next sentence prediction",
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
        "loss": Measure(kind="loss", of="DOC-SENTENCES", means="mean loss of the masked tokens in these sentences"),
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
    vocab="data.tokenizer.vocab_size=1_000",  # each word becomes one token
    budget={"tiny": ("phases=[{seq_length: 64, global_batch_size: 32, steps: 2_000}]",)},
    note="The pair formats have next sentence prediction, as in the paper. The task here (does a sentence follow "
    "another one?) is the task of that objective; the five tasks of the paper are other tasks.",
)

_EPSILONS: Final = ("1e-8", "1e-6", "1e-4", "1e-2")
_BETAS: Final = ("0.98", "0.999")


def _label(epsilon: str, beta2: str) -> str:
    return f"{epsilon} / {beta2}"


ADAM_EPS: Final = Ablation(
    name="adam-eps",
    title="Adam's epsilon and beta2",
    paper=f"{_PAPER}, section 3.1, which prints no results; table 9 has the chosen values, 1e-6 and 0.98",
    stub="epsilon / beta2",
    rows={
        _label(epsilon, beta2): AblationRow(
            recipe="roberta_base", overrides=(f"optimizer.eps={epsilon}", f"optimizer.beta2={beta2}")
        )
        for beta2 in _BETAS
        for epsilon in _EPSILONS
    },
    columns={
        "loss": Measure(
            kind="loss", of=_label("1e-6", "0.98"), means="mean loss of the masked tokens in held-out text"
        ),
        "rise": Measure(kind="rise", means="largest rise of the training loss above its lowest earlier value"),
    },
    claims=(
        *(DifferentClaim("loss", 0.1, tuple(_label(epsilon, beta2) for epsilon in _EPSILONS)) for beta2 in _BETAS),
        *(LowerClaim("rise", (_label(epsilon, "0.98"),), (_label(epsilon, "0.999"),)) for epsilon in ("1e-8", "1e-6")),
    ),
    varies=("optimizer.eps", "optimizer.beta2"),
    text="demo",
    budget={"tiny": ("phases=[{seq_length: 64, global_batch_size: 32, steps: 1_500}]",)},
    note="The paper says that training is very sensitive to epsilon; the claim here is that losses differ by more than "
    "0.1 nats. It also says that beta2 = 0.98 makes large batches more stable; the claim here is that the loss rises "
    "less. Our batches are small.",
)
