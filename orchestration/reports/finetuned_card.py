"""The model card of a fine-tuned model: README.md of the directory that `sesame eval --save` writes."""

import json
from collections.abc import Mapping
from typing import Any, Final

_USES: Final = {  # by the end of the class: the Auto class, and the call of a pipeline or of the model
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", ""),
    "ForMultipleChoice": ("AutoModelForMultipleChoice", ""),
}


def render_finetuned_card(about: Mapping[str, Any], name: str) -> str:
    """The card as Markdown, from the content of sesame.json: the use of the model, its task, its scores, its origin.

    `name`: the name of the directory.
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
        f"---\n{front}\n---\n\n"
        + "\n\n".join(
            [
                f"# {base['name']}, fine-tuned on {task['name']}",
                f"{_sentence(task['description'])} {_sentence(task['citation'])}",
                f"## Use it\n\n```python\n{_use(auto, pipeline, name)}\n```",
                f"`{about['class']}`; sequences have at most {about['max_seq_length']} tokens. "
                f"`sesame eval {name}` scores it again.",
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


def _use(auto: str, pipeline: str, name: str) -> str:
    if pipeline:
        return f'from transformers import pipeline\n\nprint(pipeline("{pipeline}", "{name}")("a text"))'
    return (
        f"from transformers import {auto}, AutoTokenizer\n\n"
        f'model, tokenizer = {auto}.from_pretrained("{name}"), AutoTokenizer.from_pretrained("{name}")'
    )


def _scores(about: Mapping[str, Any]) -> str:
    rows = [
        f"| {split} | {metric} | {value:.4f} |"
        for split, metrics in about["scores"].items()
        for metric, value in metrics.items()
    ]
    return "\n".join(["| split | metric | value |", "|---|---|---|", *rows])


def _origin(about: Mapping[str, Any], base: Mapping[str, Any], tuning: Mapping[str, Any]) -> str:
    long = f"{tuning['max_steps']:,} steps" if tuning["max_steps"] else f"{tuning['epochs']:g} epochs"
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
