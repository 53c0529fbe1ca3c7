"""The model card of a run: README.md as a hub of models shows it, front matter and all, from what is in its folder.

It names no path and no time: the same run gives the same card on any machine. What a folder does not have yet (scores,
a corpus that was moved away) the card leaves out, and says so.
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
from orchestration.reports.score_table import guesses, named, p_value, scale_value, score_of
from preprocessing.errors import BadInput
from preprocessing.files import parse_json, read_object
from preprocessing.manifest import FILE_NAME, Manifest
from preprocessing.shards import TokenStore
from preprocessing.text import language
from preprocessing.tokenization import Vocab
from training.losses import LossContext
from training.run import Run, stored_run
from training.tasks import STARTS, TASKS, TaskScore

# files of a run folder, which launch and jobs write
RESULT, WEIGHTS, EXPORT = "result.json", "weights", "export"
HEADER_BYTES = 100_000_000  # of a file of safetensors at most, as that library has it
_LANGUAGE_DOCUMENTS: Final = 100
_LANGUAGE_TOKENS: Final = 200  # of each
_LANGUAGE_SHARE: Final = 0.05  # of the documents, from which on a language is named
_PIPELINES: Final = {
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForPreTraining": "fill-mask",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForSeq2SeqLM": "text2text-generation",
    "AutoModel": "feature-extraction",
}


@dataclass(frozen=True)
class _Net:
    """What the weights of a run are."""

    parameters: int
    model_type: str = ""
    architecture: str = ""  # class of transformers; "": none has such a net
    auto: str = ""  # its Auto class
    missing: str = ""  # what that class does not have of the net


def model_card(run_folder: Path, *, license: str = "unknown", heads: bool = True) -> str:
    """The card of a run, as Markdown: how to load it, its recipe, its data, its scores, its licence.

    `license`: an identifier of the hub; whoever trains says it. `heads` False: the card of an export without them.
    BadInput where the folder holds no run.
    """
    run = stored_run(run_folder)
    name, scores = (
        run_folder.name.rpartition("-")[0] or run_folder.name,
        select_final_scores(load_finished_scores(run_folder)),
    )
    manifest, languages = _corpus(Path(run.corpus))
    net = _net(run_folder, run, heads)
    matter = _front_matter(name, net, license, languages, scores)
    sections = [
        f"# {name}\n\n{_about(run, net, manifest)}",
        *([f"## Use it\n\n{_use(net, heads)}"] if net else []),
        f"## Recipe\n\n{_recipe(run, name)}",
        f"## Data\n\n{_data(manifest, languages)}",
        f"## Results\n\n{_results(run_folder, scores)}",
        f"## Licence\n\n{_licence(license)}",
    ]
    return f"---\n{matter}\n---\n\n" + "\n\n".join(sections) + "\n"


# Front matter: YAML, of which JSON is a part


def _front_matter(
    name: str, net: _Net | None, license: str, languages: Mapping[str, float], scores: Sequence[TaskScore]
) -> str:
    values: dict[str, Any] = {"license": license, "library_name": "transformers"}
    values |= {"language": list(languages)} if languages else {}
    if net and net.architecture:
        values["pipeline_tag"] = _pipeline(net)
    values["tags"] = ["sesame", "pretraining", *([net.model_type] if net and net.model_type else [])]
    if scores:
        values["model-index"] = [{"name": name, "results": [_indexed(score) for score in scores]}]
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def _pipeline(net: _Net) -> str:
    return "feature-extraction" if net.model_type == "electra" else _PIPELINES[net.auto]


def _indexed(score: TaskScore) -> dict[str, Any]:
    """A score as the hub lists it."""
    value = round(scale_value(median(score.values("pretrained")), score.metric), 1)
    metric = {"type": score.metric, "value": value, "name": f"{score.metric.replace('_', ' ')}, median"}
    task = score.task.partition(" ")[0]
    held_out = task in TASKS
    said = f"{named(score)} (made from held-out text)" if held_out else f"{named(score)}, {score.split}"
    return {
        "task": {"type": "text-classification" if held_out else "other"},
        "dataset": {"name": said, "type": f"sesame-{task}"},
        "metrics": [metric],
    }


# Sections


def _about(run: Run, net: _Net | None, manifest: Manifest | None) -> str:
    text = f"the corpus {manifest.name}" if manifest else "a corpus that is no longer beside the run"
    size = f" with {net.parameters:,} parameters" if net else ""
    start = ", beginning with the weights of another net" if run.init_checkpoint else ""
    return f"{_first_up(run.model.describe())}{size}, pretrained with Sesame on {text}{start}."


def _use(net: _Net, heads: bool) -> str:
    if not net.architecture:
        return (
            "`transformers` has no such net; Sesame's own files of it (safetensors) are in the run's folder `weights`."
        )
    lines = [
        "```python",
        f"from transformers import {net.auto}, AutoTokenizer",
        "",
        f'model = {net.auto}.from_pretrained("FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        "```",
        "",
        f"The class is `{net.architecture}`{f', without its {net.missing}' if net.missing else ''}.",
    ]
    if not heads:
        lines.append("It has no heads. A pooler that this run did not train begins at random.")
    return "\n".join(lines)


def _recipe(run: Run, name: str) -> str:
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
        ),
        "precision": run.engine.precision,
        "seed": run.seed,
        "recipe hash": run.recipe_hash[:16],
    }
    settings = {"optimizer": asdict(run.optimizer), "model": asdict(run.model)}
    exact = _table(("key", "value"), [(f"`{key}`", _said(value)) for key, value in flatten(settings)])
    return f"{_table(('', ''), words.items())}\n\n<details>\n<summary>All values</summary>\n\n{exact}\n\n</details>"


def _paper(name: str) -> dict[str, str]:
    """The shipped recipe whose name a run has, with its paper, and the scale.

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
        return "The corpus is no longer beside the run."
    kept, seen = manifest.ledger.kept, manifest.ledger.seen
    said = (
        f"{kept.documents:,} documents, {kept.tokens:,} tokens, {kept.bytes / 1e6:,.1f} MB of text, of "
        f"{seen.documents:,} documents and {seen.bytes / 1e6:,.1f} MB that were read. Digest {manifest.digest[:16]}; "
        f"vocabulary of {manifest.vocab['size']:,} pieces ({manifest.vocab['kind']}, {manifest.vocab['hash'][:12]})."
    )
    if languages:
        said += (
            " Languages, by a sample: " + ", ".join(f"{code} {share:.0%}" for code, share in languages.items()) + "."
        )
    splits = [(name, f"{one['rows']:,}", f"{one['tokens']:,}") for name, one in manifest.splits.items()]
    lines = [("seen", f"{seen.documents:,}", f"{seen.bytes:,}")]
    lines += [(name, f"{one.documents:,}", f"{one.bytes:,}") for name, one in sorted(manifest.ledger.dropped.items())]
    lines.append(("kept", f"{kept.documents:,}", f"{kept.bytes:,}"))
    tables = _table(("split", "documents", "tokens"), splits), _table(("ledger", "documents", "bytes"), lines)
    return "\n\n".join((said, *tables))


def _results(run_folder: Path, scores: Sequence[TaskScore]) -> str:
    parts = []
    if (run_folder / RESULT).is_file():
        again = "delete stage.json, and train again"
        result = read_object(run_folder / RESULT, again, step=int, tokens=int, evaluation=dict)
        figures = {"steps": f"{result['step']:,}", "tokens": f"{result['tokens']:,}", "training loss": result["loss"]}
        figures |= {key.removeprefix("eval/"): value for key, value in result["evaluation"].items()}
        rows = [(key, _said(value)) for key, value in figures.items()]
        parts.append("Pretraining, and the loss on held-out text:\n\n" + _table(("", ""), rows))
    rows_ = [
        (
            named(each),
            f"{each.metric.replace('_', ' ')}, {each.split}",
            *(score_of(each, start) for start in STARTS),
            p_value(each),
            ", ".join(f"{name} {scale_value(value, each.metric):.1f}" for name, value in guesses(each).items()),
        )
        for each in scores
    ]
    head = ("task", "score", "pretrained", "random initialisation", "p of the difference", "a guess")
    said = (
        "Shares in percent, median and standard deviation over the seeds with the 95 % confidence interval, beside the "
        "same net from random weights (p: paired t test over seeds and questions):\n\n"
    )
    parts.append(said + _table(head, rows_) if rows_ else "No downstream task was evaluated (`sesame eval`).")
    return "\n\n".join(parts)


def _licence(license: str) -> str:
    own = (
        "Whoever trained this model has not said its licence (`sesame export --license ID` does)."
        if license == "unknown"
        else f"The weights: {license}."
    )
    return (
        f"{own} The text it was trained on keeps the licences of its sources. Sesame, which trained it, is Apache-2.0."
    )


# What is in a run folder


def _net(run_folder: Path, run: Run, heads: bool) -> _Net | None:
    folder = run_folder / WEIGHTS
    if not (folder / "spec.json").is_file():
        return None
    from training.formats import auto_class, describe_export, load_spec, model_type, without_heads  # torch: a second

    spec, parameters = load_spec(folder), num_parameters(folder, "weights")
    try:
        exported = run_folder / EXPORT
        pad = Vocab.load(exported if exported.is_dir() else Path(run.corpus) / "vocab").pad
        becomes = describe_export(spec, pad)
    except BadInput:
        return _Net(parameters)
    architecture, _, missing = becomes.partition(", without its ")
    kind = model_type(spec, pad)
    architecture = architecture if heads else without_heads(architecture)
    return _Net(parameters, kind, architecture, auto_class(architecture), missing if heads else "")


def num_parameters(folder: Path, stem: str) -> int:
    """How many numbers are in the file `stem`.safetensors of a folder, or in several with an index: their headers say
    it, and no more is read. BadInput where one has no such header."""
    whole, count = folder / f"{stem}.safetensors", 0
    for path in [whole] if whole.is_file() else sorted(folder.glob(f"{stem}-?????-of-?????.safetensors")):
        try:
            with path.open("rb") as file:
                length = min(HEADER_BYTES, int.from_bytes(file.read(8), "little"))
                header = parse_json(file.read(length))
            count += sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
        except (ValueError, LookupError, TypeError, AttributeError):
            raise BadInput(f"{path}: not a safetensors file; fetch it again") from None
    return count


def _corpus(folder: Path) -> tuple[Manifest | None, dict[str, float]]:
    """The manifest of a corpus, and the shares of its languages; nothing where it is not there any more."""
    if not (folder / FILE_NAME).is_file():
        return None, {}
    manifest = Manifest.load(folder)
    try:
        return manifest, _languages(TokenStore.open(folder, "train"))
    except BadInput:
        return manifest, {}


def _languages(store: TokenStore) -> dict[str, float]:
    """The languages of documents spread over the first shard, the most frequent first, rare ones left out."""
    shard, vocab = store.shards[0], Vocab.load(store.vocab_dir)
    count = len(shard.num_tokens_N)
    every = max(1, count // _LANGUAGE_DOCUMENTS)
    found: Counter[str] = Counter()
    for document in range(0, count, every):
        start, stop = (int(at) for at in shard.offset_N1[document : document + 2])
        found[language(vocab.decode(shard.ids_T[start : min(stop, start + _LANGUAGE_TOKENS)]))[0]] += 1
    shares = {code: times / found.total() for code, times in sorted(found.items(), key=lambda one: (-one[1], one[0]))}
    return {code: share for code, share in shares.items() if share >= _LANGUAGE_SHARE}


# Words


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(_lines(head, rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |"


def _said(value: Any) -> str:
    """
    >>> _said(0.00123456), _said(12), _said(None), _said("adamw")
    ('0.001235', '12', 'not finite', 'adamw')
    """
    return "not finite" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _first_up(text: str) -> str:
    """
    >>> _first_up("encoder, 2 layers")
    'Encoder, 2 layers'
    """
    return text[:1].upper() + text[1:]
