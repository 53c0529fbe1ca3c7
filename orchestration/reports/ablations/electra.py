"""ELECTRA, masked language modeling, and two intermediate objectives, at equal compute."""

from typing import Final

from orchestration.reports.ablations.ablation import Ablation, AblationRow, Curve, LowerClaim, Measure

_COMPUTES: Final = (0.25, 0.5, 1.0)
# Loss of the discriminator, and the paper's average on GLUE dev. The loss of the generator is always the same.
_METHODS: Final = {
    "ELECTRA": ("{kind: replaced_token_detection, weight: 5.0}", 85.0),
    "all-tokens MLM": ("{kind: replaced_token_detection, predict: original, weight: 1.0}", 84.3),
    "replace MLM": ("{kind: replaced_token_detection, predict: original, predict_at: masked, weight: 1.0}", 82.4),
    "ELECTRA 15 percent": ("{kind: replaced_token_detection, predict_at: masked, weight: 5.0}", 82.4),
}
_MLM: Final = "MLM"
_MLM_LIKE_ELECTRA: Final = (  # BERT with ELECTRA's recipe, but without a discriminator and its loss
    "data.packing={kind: segment_pair, negatives: none, short_seq_prob: 0.05, single_segment_prob: 0.1}",
    "losses=[{kind: masked_tokens}]",
    "data.static_masks=0",
    "optimizer.lr_schedule=linear_times_warmup",
)
_ORDER: Final = "data.packing={kind: segment_pair, negatives: swapped, short_seq_prob: 0.05}"


def _label(method: str, compute: float) -> str:
    return f"{method}: compute {compute:g}"


def _row(method: str, compute: float) -> AblationRow:
    loss, figure = _METHODS.get(method, ("", 82.2))
    return AblationRow(
        recipe="electra_base" if loss else "bert_base",
        overrides=(
            (f"losses=[{{kind: masked_tokens}}, {loss}]", "model.embedding_size=0") if loss else _MLM_LIKE_ELECTRA
        ),
        compute=compute,
        line=method,
        paper={"GLUE": figure} if compute == max(_COMPUTES) else {},
    )


def _at_most_compute(method: str) -> str:
    return _label(method, max(_COMPUTES))


ELECTRA_COMPUTE: Final = Ablation(
    name="electra-compute",
    title="Score over training compute: masked tokens, replaced tokens, and two intermediate objectives",
    paper="ELECTRA, Clark et al. 2020, arXiv:2003.10555, section 3.5, table 5, figures 2 and 4; its curve: table 1",
    stub="objective",
    rows={_label(method, compute): _row(method, compute) for method in (*_METHODS, _MLM) for compute in _COMPUTES},
    columns={
        "next_sentence": Measure(
            kind="task", of="next_sentence", means="fine-tuned: does the second sentence follow the first?"
        ),
        "order": Measure(
            kind="pairs",
            of=_at_most_compute(_MLM),
            overrides=(_ORDER,),
            means="a linear probe: are two segments swapped?",
        ),
    },
    claims=tuple(
        LowerClaim("next_sentence", (_at_most_compute(lower),), (_at_most_compute(higher),))
        for lower, higher in (
            (_MLM, "ELECTRA 15 percent"),
            (_MLM, "replace MLM"),
            ("ELECTRA 15 percent", "all-tokens MLM"),
            ("replace MLM", "all-tokens MLM"),
            ("all-tokens MLM", "ELECTRA"),
        )
    ),
    varies=("losses", "objective", "model", "phases.0.steps"),
    vocab="data.tokenizer={kind: wordpiece, vocab_size: 800}",  # each word becomes one token
    budget={"tiny": ("phases=[{seq_length: 64, global_batch_size: 32, steps: 2_000}]", "optimizer.warmup_steps=100")},
    equal_to=_at_most_compute(_MLM),
    facts=("FLOPs",),
    axis="FLOPs",
    theirs="GLUE (dev)",
    curves=(
        Curve(
            name="ELECTRA small",
            points=((8.9e16, 74.1), (1.8e17, 76.0), (3.6e17, 77.7), (7.1e17, 79.0), (1.4e18, 79.9)),
        ),
        Curve(name="BERT small", points=((1.4e18, 75.1),)),
    ),
    note="Each row is a separate run with its own learning-rate schedule. `--scale` makes the generator as "
    "wide as the discriminator, and gives the loss of replaced tokens the weight 5 instead of 50. The loss of "
    "original tokens has the weight 1. The score is from one task, not from GLUE.",
)
