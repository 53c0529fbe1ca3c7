"""SpanBERT's masking schemes."""

from typing import Final

from orchestration.reports.ablations.table import Below, Measure, Row, Table

SPANBERT_MASKING: Final = Table(
    name="spanbert-masking",
    title="Which spans to mask",
    paper="SpanBERT, Joshi et al. 2019, arXiv:1907.10529, table 5",
    stub="masked",
    rows={
        "subword tokens": Row(recipe="spanbert_subwords", paper={"SQuAD 2": 83.8, "MNLI": 86.7, "QNLI": 92.5}),
        "whole words": Row(recipe="spanbert_words", paper={"SQuAD 2": 84.3, "MNLI": 86.3, "QNLI": 92.8}),
        "named entities": Row(
            recipe="spanbert_entities", units="names", paper={"SQuAD 2": 84.8, "MNLI": 86.0, "QNLI": 93.1}
        ),
        "noun phrases": Row(
            recipe="spanbert_noun_phrases", units="phrases", paper={"SQuAD 2": 85.0, "MNLI": 86.5, "QNLI": 93.2}
        ),
        "random spans": Row(recipe="spanbert_spans", paper={"SQuAD 2": 85.4, "MNLI": 87.0, "QNLI": 93.3}),
    },
    columns={
        "spans": Measure(kind="masked", of="random spans", means="masked-token accuracy, where whole spans are masked"),
        "tokens": Measure(
            kind="masked", of="subword tokens", means="masked-token accuracy, where tokens are masked one by one"
        ),
        "follows": Measure(kind="task", of="follows", means="fine-tuned: does the second sentence follow the first?"),
    },
    claims=(
        Below("spans", ("subword tokens", "whole words", "named entities", "noun phrases"), ("random spans",)),
        Below("follows", ("subword tokens", "whole words", "named entities", "noun phrases"), ("random spans",)),
    ),
    varies=("data.corpus", "objective.choose", "objective.rewrite.unit"),
    vocab="data.vocab={kind: wordpiece, size: 400, lowercase: false}",  # a word is 1.3 pieces
    budget={"tiny": ("phases=[{length: 64, batch: 32, steps: 1_500}]",)},
)
