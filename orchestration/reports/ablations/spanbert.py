"""SpanBERT's masking schemes, and its second objective."""

from typing import Final

from orchestration.reports.ablations.ablation import Ablation, AblationRow, LowerClaim, Measure

_PAPER: Final = "SpanBERT, Joshi et al. 2019, arXiv:1907.10529"
_FOLLOWS: Final = Measure(
    kind="task", of="next_sentence", means="fine-tuned: does the second sentence follow the first?"
)
_WORDS: Final = (
    "data.tokenizer={kind: wordpiece, vocab_size: 400, lowercase: false}"  # a word has 1.3 tokens on average
)
_BUDGET: Final = {"tiny": ("phases=[{seq_length: 64, global_batch_size: 32, steps: 1_500}]",)}

SPANBERT_MASKING: Final = Ablation(
    name="spanbert-masking",
    title="Which spans to mask",
    paper=f"{_PAPER}, table 5",
    stub="masked",
    rows={
        "subword tokens": AblationRow(recipe="spanbert_subwords", paper={"SQuAD 2": 83.8, "MNLI": 86.7, "QNLI": 92.5}),
        "whole words": AblationRow(recipe="spanbert_words", paper={"SQuAD 2": 84.3, "MNLI": 86.3, "QNLI": 92.8}),
        "named entities": AblationRow(
            recipe="spanbert_entities", units="names", paper={"SQuAD 2": 84.8, "MNLI": 86.0, "QNLI": 93.1}
        ),
        "noun phrases": AblationRow(
            recipe="spanbert_noun_phrases", units="phrases", paper={"SQuAD 2": 85.0, "MNLI": 86.5, "QNLI": 93.2}
        ),
        "random spans": AblationRow(recipe="spanbert_spans", paper={"SQuAD 2": 85.4, "MNLI": 87.0, "QNLI": 93.3}),
    },
    columns={
        "spans": Measure(kind="masked", of="random spans", means="masked-token accuracy, with whole spans masked"),
        "tokens": Measure(kind="masked", of="subword tokens", means="masked-token accuracy, with single tokens masked"),
        "next_sentence": _FOLLOWS,
    },
    claims=(
        LowerClaim("spans", ("subword tokens", "whole words", "named entities", "noun phrases"), ("random spans",)),
        LowerClaim(
            "next_sentence", ("subword tokens", "whole words", "named entities", "noun phrases"), ("random spans",)
        ),
    ),
    varies=("data.corpus", "masking", "objective.replace_unit"),
    vocab=_WORDS,
    budget=_BUDGET,
    note="All rows have pairs and next sentence prediction, as the caption of the table says. The task here (does a "
    "sentence follow another one?) is the task of that objective. Half of the spans are entities or noun phrases. "
    "The other half are random spans, as in the code of the authors; the paper says random whole words.",
)

SPANBERT_OBJECTIVES: Final = Ablation(
    name="spanbert-objectives",
    title="One sequence or two, with next sentence prediction or span boundaries",
    paper=f"{_PAPER}, table 6",
    stub="over random spans",
    rows={
        "2 sequences and NSP": AblationRow(
            recipe="spanbert_spans",
            paper={"SQuAD 2": 85.4, "NewsQA": 73.0, "TriviaQA": 78.8, "coreference": 76.4, "MNLI": 87.0, "QNLI": 93.3},
        ),
        "1 sequence": AblationRow(
            recipe="spanbert_single",
            paper={"SQuAD 2": 86.7, "NewsQA": 73.4, "TriviaQA": 80.0, "coreference": 76.3, "MNLI": 87.3, "QNLI": 93.8},
        ),
        "1 sequence and SBO": AblationRow(
            recipe="spanbert_single_sbo",
            paper={"SQuAD 2": 86.8, "NewsQA": 74.1, "TriviaQA": 80.3, "coreference": 79.0, "MNLI": 87.6, "QNLI": 93.9},
        ),
    },
    columns={
        "spans": Measure(kind="masked", of="1 sequence", means="masked-token accuracy, in one sequence"),
        "loss": Measure(kind="loss", of="1 sequence", means="mean loss of the masked tokens in this sequence"),
        "next_sentence": _FOLLOWS,
    },
    claims=(
        LowerClaim("spans", ("2 sequences and NSP",), ("1 sequence", "1 sequence and SBO")),
        LowerClaim("next_sentence", ("2 sequences and NSP",), ("1 sequence", "1 sequence and SBO")),
        LowerClaim("next_sentence", ("1 sequence",), ("1 sequence and SBO",)),
    ),
    varies=("data.packing", "losses"),
    vocab=_WORDS,
    budget=_BUDGET,
    note="The task here (does a sentence follow another one?) is the task of next sentence prediction; the six tasks "
    "of the paper are other tasks.",
)
