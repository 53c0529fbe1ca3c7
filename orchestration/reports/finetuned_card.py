"""The model card of a fine-tuned model: README.md of the directory that `sesame eval --save` writes."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from orchestration.reports.score_table import format_decimal

_USES: Final = {  # by the end of the class: the Auto class, and the call of a pipeline or of the model
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", ""),
    "ForMultipleChoice": ("AutoModelForMultipleChoice", ""),
}


def render_finetuned_card(
    about: Mapping[str, Any], folder: str, setup: Sequence[str] = (), *, for_hub: bool = True
) -> str:
    """The card as Markdown, from the content of sesame.json: the use of the model, its task, its scores, its origin.

    `folder`: the address of the directory that `sesame eval` scores again. `setup`: lines of Python, imports first,
    that set the variable `folder`, from which the model is then loaded instead. `for_hub`: whether the card has front
    matter.
    """
    task, base, tuning = about["task"], about["base"], about["tuning"]
    auto, pipeline = next(use for end, use in _USES.items() if end in about["class"])
    matter = {
        "library_name": "transformers",
        **({"pipeline_tag": pipeline} if pipeline else {}),
        "base_model": base["name"],
        "tags": ["sesame", task["name"]],
    }
    front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in matter.items())
    return (
        (f"---\n{front}\n---\n\n" if for_hub else "")
        + "\n\n".join(
            [
                f"# {base['name']}, fine-tuned on {task['name']}",
                f"{_sentence(task['description'])} {_sentence(task['citation'])}",
                f"## Use it\n\n```python\n{_use(auto, pipeline, folder, setup)}\n```",
                f"`{about['class']}`; sequences have at most {about['max_seq_length']} tokens. "
                f"`{shlex.join(['sesame', 'eval', folder])}` scores it again.",
                f"## Scores\n\n{_scores(about)}",
                f"## Origin\n\n{_origin(about, base, tuning)}",
            ]
        )
        + "\n"
    )


def _sentence(text: str) -> str:
    """
    >>> _sentence("is this a review of IMDb")
    'Is this a review of IMDb.'
    """
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _use(auto: str, pipeline: str, folder: str, setup: Sequence[str]) -> str:
    """Lines of Python that load the model, and call it if it has a pipeline."""
    given = "folder" if setup else json.dumps(folder, ensure_ascii=False)
    others = [line for line in setup if not line.startswith("import ")]
    use = (
        [f'print(pipeline("{pipeline}", {given})("a text"))']
        if pipeline
        else [f"model = {auto}.from_pretrained({given})", f"tokenizer = AutoTokenizer.from_pretrained({given})"]
    )
    imported = "pipeline" if pipeline else f"{auto}, AutoTokenizer"
    imports = [*(line for line in setup if line.startswith("import ")), f"from transformers import {imported}"]
    return "\n".join([*imports, "", *others, *use])


def _scores(about: Mapping[str, Any]) -> str:
    rows = [
        f"| {split} | {metric} | {format_decimal(value, 4)} |"
        for split, metrics in about["scores"].items()
        for metric, value in metrics.items()
    ]
    return "\n".join(["| split | metric | value |", "|---|---|---|", *rows])


def _origin(about: Mapping[str, Any], base: Mapping[str, Any], tuning: Mapping[str, Any]) -> str:
    epochs = f"{tuning['epochs']:g} epoch{'s' * (tuning['epochs'] != 1)}"
    long = f"{tuning['max_steps']:,} step{'s' * (tuning['max_steps'] != 1)}" if tuning["max_steps"] else epochs
    step = f", step {base['step']:,}" if base["step"] is not None else ""
    lines = [
        f"- Base model: {base['name']}{step}, hash {base['hash'][:12]}",
        f"- Training: {about['train_examples']:,} examples, {long}, batch size {tuning['batch_size']}, learning rate "
        f"{tuning['learning_rate']:g}, seed {tuning['seed']}",
        f"- Selection: {about['selected']}",
        f"- Command: `{about['command']}`",
        f"- Sesame {about['sesame_version']}",
        *(f"- Note: {note}" for note in about["notes"]),
    ]
    return "\n".join(lines)
