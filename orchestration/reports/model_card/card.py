"""The model card of a run: README.md for a model hub, with front matter, made from the files in the run directory.

The card contains no time, and no path except the address of the export, so equal runs have equal cards on any machine.
If files are missing, for example scores or the corpus, the card says so.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from orchestration.config import SCALES, flatten, list_names, load
from orchestration.reports.saved_scores import load_finished_scores, select_final_scores
from orchestration.reports.score_table import format_value, guesses, name_score, p_value, scale_value, score_of
from preprocessing.errors import BadInput, ResourceError
from preprocessing.files import parse_json, read_object
from preprocessing.manifest import FILE_NAME, Manifest
from preprocessing.shards import TokenStore
from preprocessing.text import language
from preprocessing.tokenization import Vocab
from training.evaluation.tasks import STARTS, TASKS, TaskScore
from training.losses import LossContext
from training.run import Run, load_stored_run

# names of files and directories in the run directory, which launch and jobs write
RESULT, WEIGHTS, EXPORT = "result.json", "weights", "export"
HEADER_BYTES = 100_000_000  # maximum size of the header of a safetensors file, as in that library
_REMEDY: Final = "delete stage.json, and train again"  # for a damaged RESULT
_LANGUAGE_DOCUMENTS: Final = 100
_LANGUAGE_TOKENS: Final = 200  # tokens at the start of a document that identify its language
_MIN_LANGUAGE_RATIO: Final = 0.05  # languages of fewer documents are left out
_PIPELINES: Final = {
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForPreTraining": "fill-mask",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForSeq2SeqLM": "text2text-generation",
    "AutoModel": "feature-extraction",
}


@dataclass(frozen=True)
class _ExportedModel:
    """Facts about the weights of a run."""

    parameters: int
    model_type: str = ""
    architecture: str = ""  # class of transformers; "": no class fits
    auto: str = ""  # the Auto class of `architecture`
    missing: str = ""  # parts of the model that `architecture` does not have


def model_card(
    run_folder: Path,
    *,
    license: str = "unknown",
    heads: bool = True,
    address: str = "FOLDER",
    setup: Sequence[str] = (),
    for_hub: bool = True,
) -> str:
    """The card of a run as Markdown: how to load the model, and its recipe, data, scores and license.

    `license`: an identifier of the hub, chosen by the user. `heads`: whether the export contains the heads. `address`:
    the directory or repository of the export, for `from_pretrained`. `setup`: lines of Python, imports first, that set
    the variable `folder`, which then is the address. `for_hub`: whether the card has front matter, its title and
    a table of all values. BadInput if the directory contains no run.
    """
    run = load_stored_run(run_folder)
    name, scores = (
        run_folder.name.rpartition("-")[0] or run_folder.name,
        select_final_scores(load_finished_scores(run_folder)),
    )
    manifest, languages = _corpus(Path(run.corpus))
    model = _find_exported_model(run_folder, run, heads)
    matter = _front_matter(name, model, license, languages, scores)
    sections = [
        *([f"# {name}"] if for_hub else []),
        _about(run, model, manifest),
        *([f"## Use it\n\n{_use(model, heads, address, setup)}"] if model else []),
        f"## Recipe\n\n{_recipe(run, name, _find_last_step(run_folder), with_values=for_hub)}",
        f"## Data\n\n{_data(manifest, languages)}",
        f"## Results\n\n{_results(run_folder, scores)}",
        f"## License\n\n{_license_text(license)}",
    ]
    return (f"---\n{matter}\n---\n\n" if for_hub else "") + "\n\n".join(sections) + "\n"


# Front matter: YAML, written as JSON, which is a subset of YAML


def _front_matter(
    name: str, model: _ExportedModel | None, license: str, languages: Mapping[str, float], scores: Sequence[TaskScore]
) -> str:
    values: dict[str, Any] = {"license": license, "library_name": "transformers"}
    values |= {"language": list(languages)} if languages else {}
    if model and model.architecture:
        values["pipeline_tag"] = _pipeline(model)
    values["tags"] = ["sesame", "pretraining", *([model.model_type] if model and model.model_type else [])]
    if scores:
        values["model-index"] = [{"name": name, "results": [_to_index_entry(score) for score in scores]}]
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def _pipeline(model: _ExportedModel) -> str:
    return "feature-extraction" if model.model_type == "electra" else _PIPELINES[model.auto]


def _to_index_entry(score: TaskScore) -> dict[str, Any]:
    """A score in the format of the hub."""
    value = round(scale_value(median(score.values("pretrained")), score.metric), 1)
    metric = {"type": score.metric, "value": value, "name": f"{score.metric.replace('_', ' ')}, median"}
    task = score.task.partition(" ")[0]
    held_out = task in TASKS
    dataset = f"{name_score(score)} (made from held-out text)" if held_out else f"{name_score(score)}, {score.split}"
    return {
        "task": {"type": "text-classification" if held_out else "other"},
        "dataset": {"name": dataset, "type": f"sesame-{task}"},
        "metrics": [metric],
    }


# Sections


def _about(run: Run, model: _ExportedModel | None, manifest: Manifest | None) -> str:
    text = f"the corpus {manifest.name}" if manifest else "a corpus that was not found"
    size = f" with {model.parameters:,} parameters" if model else ""
    start = ", initialized from the weights of another model" if run.init_checkpoint else ""
    return f"{_capitalize(run.model.describe())}{size}, pretrained with Sesame on {text}{start}."


def _use(model: _ExportedModel, heads: bool, address: str, setup: Sequence[str]) -> str:
    if not model.architecture:
        return (
            "`transformers` has no class for this model. The directory `weights` of the run has its weights as "
            "safetensors files."
        )
    given = "folder" if setup else json.dumps(address, ensure_ascii=False)
    lines = [
        "```python",
        *(line for line in setup if line.startswith("import ")),
        f"from transformers import {model.auto}, AutoTokenizer",
        "",
        *(others := [line for line in setup if not line.startswith("import ")]),
        *([""] if others else []),
        f"model = {model.auto}.from_pretrained({given})",
        f"tokenizer = AutoTokenizer.from_pretrained({given})",
        "```",
        "",
        f"The class is `{model.architecture}`{f', without its {model.missing}' if model.missing else ''}.",
    ]
    if not heads:
        lines.append("This export has no heads. A pooler that the run did not train is randomly initialized.")
    return "\n".join(lines)


def _recipe(run: Run, name: str, last_step: int | None, *, with_values: bool) -> str:
    sampling, losses = run.sampling, run.losses
    masked = sampling.objective.describe() if sampling.objective.selects else sampling.masking.describe()
    context = LossContext(
        label_says=sampling.packing.label_says,
        target=sampling.objective.target if run.model.reads_source else "",
        permuted=run.model.hides_own_token,
    )
    words = _paper(name) | {
        "packing": sampling.packing.describe(),
        "masking": masked,
        "objective": " + ".join(loss.describe(context) for loss in losses),
        "architecture": run.model.describe(),
        "training": "; ".join(
            f"{one.steps:,} steps of {one.global_batch_size:,} x {one.seq_length:,} tokens" for one in run.phases
        )
        + ("" if last_step in (None, run.steps) else f"; ended early, after step {last_step:,}"),
        "precision": run.engine.precision,
        "seed": run.seed,
        "recipe hash": run.recipe_hash[:16],
    }
    if not with_values:
        return _table(("", ""), words.items())
    settings = {"optimizer": asdict(run.optimizer), "model": asdict(run.model)}
    exact = _table(("key", "value"), [(f"`{key}`", _as_text(value)) for key, value in flatten(settings)])
    return f"{_table(('', ''), words.items())}\n\n<details>\n<summary>All values</summary>\n\n{exact}\n\n</details>"


def _paper(name: str) -> dict[str, str]:
    """The paper of the shipped recipe with the name of the run, and the scale in the name; {} for another name.

    >>> _paper("gpt2_tiny")["scale"], _paper("gpt2_mine")
    ('tiny', {})
    """
    if name in list_names("recipes"):
        return {"named after": load(name).paper}
    recipe, _, scale = name.rpartition("_")
    if recipe not in list_names("recipes") or scale not in SCALES:
        return {}
    return {"named after": load(recipe).paper, "scale": scale}


def _data(manifest: Manifest | None, languages: Mapping[str, float]) -> str:
    if manifest is None:
        return "The corpus of the run was not found."
    kept, seen = manifest.ledger.kept, manifest.ledger.seen
    text = (
        f"{kept.documents:,} documents, {kept.tokens:,} tokens, {kept.bytes / 1e6:,.1f} MB of text, kept from "
        f"{seen.documents:,} documents and {seen.bytes / 1e6:,.1f} MB. Digest: {manifest.digest[:16]}. "
        f"Vocabulary: {manifest.vocab['size']:,} entries ({manifest.vocab['kind']}, {manifest.vocab['hash'][:12]})."
    )
    if languages:
        text += " Languages of a sample: " + ", ".join(f"{code} {share:.0%}" for code, share in languages.items()) + "."
    splits = [(name, f"{one['rows']:,}", f"{one['tokens']:,}") for name, one in manifest.splits.items()]
    lines = [("seen", f"{seen.documents:,}", f"{seen.bytes:,}")]
    lines += [(name, f"{one.documents:,}", f"{one.bytes:,}") for name, one in sorted(manifest.ledger.dropped.items())]
    lines.append(("kept", f"{kept.documents:,}", f"{kept.bytes:,}"))
    tables = _table(("split", "documents", "tokens"), splits), _table(("ledger", "documents", "bytes"), lines)
    return "\n\n".join((text, *tables))


def _results(run_folder: Path, scores: Sequence[TaskScore]) -> str:
    parts = []
    if (run_folder / RESULT).is_file():
        result = read_object(run_folder / RESULT, _REMEDY, step=int, tokens=int, evaluation=dict)
        figures = {"steps": f"{result['step']:,}", "tokens": f"{result['tokens']:,}", "training loss": result["loss"]}
        figures |= {key.removeprefix("eval/"): value for key, value in result["evaluation"].items()}
        rows = [(key, _as_text(value)) for key, value in figures.items()]
        parts.append("Results of pretraining, with the loss on held-out text:\n\n" + _table(("", ""), rows))
    rows_ = [
        (
            name_score(each),
            f"{each.metric.replace('_', ' ')}, {each.split}",
            *(score_of(each, start) for start in STARTS),
            p_value(each),
            ", ".join(f"{name} {format_value(value, each.metric)}" for name, value in guesses(each).items()),
        )
        for each in scores
    ]
    head = ("task", "score", "pretrained", "random initialization", "p of the difference", "guess")
    intro = (
        "Median and standard deviation over the seeds, with the 95 % confidence interval, compared with the same model "
        "from random weights. Fractions are in percent (p: paired t test over seeds and examples).\n\n"
    )
    parts.append(intro + _table(head, rows_) if rows_ else "No downstream task was evaluated (`sesame eval`).")
    return "\n\n".join(parts)


def _find_last_step(run_folder: Path) -> int | None:
    """The last step of a finished run; None if the run has no result."""
    if not (run_folder / RESULT).is_file():
        return None
    return int(read_object(run_folder / RESULT, _REMEDY, step=int)["step"])


def _license_text(license: str) -> str:
    weights = (
        "The license of the weights was not stated (`sesame export --license ID` states it)."
        if license == "unknown"
        else f"The license of the weights: {license}."
    )
    return f"{weights} The training text keeps the licenses of its sources. Sesame has the license Apache-2.0."


# Contents of a run directory


def _find_exported_model(run_folder: Path, run: Run, heads: bool) -> _ExportedModel | None:
    folder = run_folder / WEIGHTS
    if not (folder / "spec.json").is_file():
        return None
    from training.formats import auto_class, describe_export, load_spec, model_type, without_heads

    spec, parameters = load_spec(folder), num_parameters(folder, "weights")
    try:
        exported = run_folder / EXPORT
        pad = Vocab.load(exported if exported.is_dir() else Path(run.corpus) / "vocab").pad
        becomes = describe_export(spec, pad)
    except BadInput:
        return _ExportedModel(parameters)
    architecture, _, missing = becomes.partition(", without its ")
    kind = model_type(spec, pad)
    architecture = architecture if heads else without_heads(architecture)
    return _ExportedModel(parameters, kind, architecture, auto_class(architecture), missing if heads else "")


def num_parameters(folder: Path, stem: str) -> int:
    """The number of parameters in `stem`.safetensors in a directory, or in its numbered parts.

    Reads only the headers of the files. BadInput if a header is invalid.
    """
    whole, count = folder / f"{stem}.safetensors", 0
    for path in [whole] if whole.is_file() else sorted(folder.glob(f"{stem}-?????-of-?????.safetensors")):
        try:
            with path.open("rb") as file:
                length = min(HEADER_BYTES, int.from_bytes(file.read(8), "little"))
                header = parse_json(file.read(length))
            count += sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
        except (ValueError, LookupError, TypeError, AttributeError):
            raise BadInput(f"{path}: not a safetensors file; download or export it again") from None
    return count


def _corpus(folder: Path) -> tuple[Manifest | None, dict[str, float]]:
    """The manifest of a corpus and the fractions of its languages; None and {} if the corpus does not exist."""
    if not (folder / FILE_NAME).is_file():
        return None, {}
    manifest = Manifest.load(folder)
    try:
        return manifest, _languages(TokenStore.open(folder, "train"))
    except (BadInput, ResourceError):  # also if the shards are in a store that does not answer
        return manifest, {}


def _languages(store: TokenStore) -> dict[str, float]:
    """The fractions of languages in evenly spaced documents of the first shard, without rare languages."""
    shard, vocab = store.shards[0], Vocab.load(store.vocab_dir)
    count = len(shard.num_tokens_N)
    every = max(1, count // _LANGUAGE_DOCUMENTS)
    found: Counter[str] = Counter()
    for document in range(0, count, every):
        start, stop = (int(at) for at in shard.offset_N1[document : document + 2])
        found[language(vocab.decode(shard.ids_T[start : min(stop, start + _LANGUAGE_TOKENS)]))[0]] += 1
    shares = {code: times / found.total() for code, times in sorted(found.items(), key=lambda one: (-one[1], one[0]))}
    return {code: share for code, share in shares.items() if share >= _MIN_LANGUAGE_RATIO}


# Text


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(_lines(head, rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"


def _as_text(value: Any) -> str:
    """A value as text.

    >>> _as_text(0.00123456), _as_text(12), _as_text(None), _as_text("adamw")
    ('0.001235', '12', 'not finite', 'adamw')
    """
    return "not finite" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _capitalize(text: str) -> str:
    """The text with a capital first letter.

    >>> _capitalize("encoder, 2 layers")
    'Encoder, 2 layers'
    """
    return text[:1].upper() + text[1:]
