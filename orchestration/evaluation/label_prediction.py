"""The labels of texts, as a fine-tuned model predicts them."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration.evaluation.eval_request import FinetunedSource
from preprocessing.errors import BadInput

Text = str | tuple[str, str]
"""A text, or a pair of texts."""


@dataclass(frozen=True)
class LabelPrediction:
    """The most probable labels of a text with their probabilities, the most probable first; for a regression, the name
    of its number and the number."""

    text: Text
    labels: tuple[tuple[str, float], ...]
    is_number: bool = False

    def __str__(self) -> str:
        """
        >>> print(LabelPrediction("a fine film", (("1", 0.75), ("0", 0.25))))
        a fine film -> 1 75.0 %, 0 25.0 %
        >>> print(LabelPrediction(("a man runs", "he moves"), (("similarity", 3.25),), is_number=True))
        a man runs | he moves -> similarity 3.25
        """
        text = self.text if isinstance(self.text, str) else " | ".join(self.text)
        shown = [
            f"{name} {value:.4g}" if self.is_number else f"{name} {100 * value:.1f} %" for name, value in self.labels
        ]
        return f"{text} -> {', '.join(shown)}"


def predict_labels(source: FinetunedSource, texts: Sequence[Text], top_k: int = 5) -> list[LabelPrediction]:
    """The `top_k` most probable labels of each text or pair, as by the pipeline of transformers for its directory.

    The probabilities of all labels sum to 1, unless the config says that a text may have several labels. Texts are
    truncated as in the fine-tuning. Raises BadInput if the head is not for texts.
    """
    if top_k < 1:
        raise BadInput(f"invalid top_k: got {top_k}, expected an integer of at least 1; raise it")
    from training.evaluation import FinetunedModel, read_outputs

    model = FinetunedModel.load(source.folder)
    try:
        output_N = read_outputs(model, [(one,) if isinstance(one, str) else one for one in texts], source.length)
    except BadInput as error:
        raise BadInput(f"{source.folder}: {error}") from None
    if source.kind == "row_value":
        (name,) = source.labels
        return [
            LabelPrediction(text, ((name, value),), is_number=True)
            for text, value in zip(texts, output_N.tolist(), strict=True)
        ]
    has_several = model.task.config.get("problem_type") == "multi_label_classification"
    p_NC = output_N.sigmoid() if has_several else output_N.softmax(-1)
    best = p_NC.topk(min(top_k, len(source.labels)))
    rows = zip(texts, best.values.tolist(), best.indices.tolist(), strict=True)
    return [
        LabelPrediction(text, tuple((source.labels[at], p) for at, p in zip(numbers, ps, strict=True)))
        for text, ps, numbers in rows
    ]
