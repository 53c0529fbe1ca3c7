"""Reads a task file of lm-eval as a task: a YAML file without Python code, whose data are local files.

KEYS and METRICS are the only places that know lm-eval's names. A key that changes a prompt or a score, and is not
supported, is refused by its name.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from orchestration.config.error_messages import invalid
from orchestration.config.library import is_shipped_task
from preprocessing.errors import BadInput
from training.files import CsvFormat, DatasetsFormat, Formats, JsonlFormat, ParquetFormat, TableFormat
from training.tasks import (
    Generation,
    GenerationSettings,
    Kinds,
    LmEvalGeneration,
    LmEvalRecords,
    LoglikelihoodChoice,
    PerplexityTask,
    SplitRecords,
    TaskFile,
    check_template,
)

KEYS: Final[Mapping[str, str]] = {  # keys of lm-eval, and the keys of the task that they become
    "task": "name",
    "output_type": "task.kind",
    "dataset_path": "files",
    "dataset_name": "files",
    "dataset_kwargs": "files",
    "training_split": "files",
    "validation_split": "files.dev",
    "test_split": "files.test",
    "fewshot_split": "files",
    "doc_to_text": "task.context",
    "doc_to_target": "task.label",
    "doc_to_choice": "task.choices",
    "description": "task.context",
    "target_delimiter": "task.target_delimiter",
    "fewshot_delimiter": "task.fewshot_delimiter",
    "fewshot_config": "task.context",
    "num_fewshot": "task.num_fewshot",
    "metric_list": "task.metrics",
    "generation_kwargs": "task.generation",
    "filter_list": "task.generation",
}
METRICS: Final[Mapping[str, Mapping[str, str]]] = {  # metrics of lm-eval by output type; the first ones are its default
    "multiple_choice": {
        "acc": "accuracy",
        "acc_norm": "accuracy_character",
        "acc_bytes": "accuracy_byte",
        "acc_mutual_info": "accuracy_unconditional",
    },
    "loglikelihood": {"perplexity": "perplexity", "acc": "last_word"},
    "loglikelihood_rolling": {
        "word_perplexity": "word_perplexity",
        "byte_perplexity": "byte_perplexity",
        "bits_per_byte": "bits_per_byte",
    },
    "generate_until": {"exact_match": "exact_match"},
}
DEFAULTS: Final = {
    "multiple_choice": ("acc", "acc_norm"),
    "loglikelihood": ("perplexity", "acc"),
    "loglikelihood_rolling": ("word_perplexity", "byte_perplexity", "bits_per_byte"),
    "generate_until": ("exact_match",),
}
_AGGREGATIONS: Final = {
    "perplexity": "perplexity",
    "word_perplexity": "weighted_perplexity",
    "byte_perplexity": "weighted_perplexity",
    "bits_per_byte": "bits_per_byte",
}
_IGNORED: Final = (  # they change neither prompts nor scores
    *("tag", "task_alias", "metadata", "should_decontaminate", "doc_to_decontamination_query", "include"),
    "group_alias",
)
_MARKS: Final = (
    "output_type",
    "dataset_path",
    "doc_to_text",
    "doc_to_target",
    "metric_list",
    "include",
    "process_docs",
)
_MOST_LABELS: Final = 1000
_LONGEST: Final = 256  # lm-eval's default of max_gen_toks
_FORMATS: Final[Mapping[str, Formats]] = {
    "json": JsonlFormat(),
    "parquet": ParquetFormat(as_stored=True),
    "csv": CsvFormat(),
}


class _Loader(yaml.SafeLoader):
    """YAML 1.1, as lm-eval reads it: an unquoted `no` is False. Functions are marked, and never imported."""


class _Function(str):
    """The name of a Python function."""


_Loader.add_constructor("!function", lambda loader, node: _Function(getattr(node, "value", "")))


def is_lm_eval_file(path: Path) -> bool:
    """Whether a YAML file has keys of lm-eval's task files, and not those of a task file of Sesame."""
    try:
        names = set(re.findall(r"^([a-z_]+)\s*:", path.read_text(encoding="utf-8"), re.MULTILINE))
    except (OSError, UnicodeDecodeError):
        return False
    is_group = "group" in names and "task" in names and "citation" not in names
    return "files" not in names and (is_group or not names.isdisjoint(_MARKS))


def load_lm_eval_task(path: Path) -> TaskFile:
    """The task of an lm-eval file. BadInput in one line if it needs Python code or has a key that is not supported."""
    where, found = str(path), _read(path, ())
    if isinstance(found.get("task"), list) or "group" in found:
        raise _error(where, "group", "a group of tasks", "a file with one task", "name the files of its tasks")
    for name, value in found.items():
        _check_key(where, name, value)
    kind = found.get("output_type", "generate_until")
    if kind not in METRICS:
        raise _error(where, "output_type", repr(kind), " or ".join(METRICS), "change the file")
    metrics = _metrics(where, found, kind)
    evaluated = _splits(where, found, metrics)
    name = _text(where, found, "task") or path.stem
    name = f"lm_eval_{name}" if is_shipped_task(name) else name
    try:
        return TaskFile(
            name=name,
            description=f"lm-eval task of {path.name}",
            citation=str(path),
            files=evaluated,
            task=_kind(where, found, kind, metrics),
            note=_note(found, kind),
        )
    except ValueError as error:
        raise BadInput(f"{where}: {error}; change the file") from None


def _error(where: str, key: str, got: str, expected: str, remedy: str) -> BadInput:
    return BadInput(f"{where}: {invalid(key, got, expected, remedy)}")


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """The keys of a file and of the files that it includes; keys of the file itself win."""
    if path.resolve() in above:
        raise BadInput(f"{path}: invalid include: the file includes itself; remove the include")
    try:
        found = yaml.load(path.read_bytes(), Loader=_Loader)  # _Loader is a SafeLoader
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); correct the path") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise BadInput(f"{path}{line}: invalid YAML: {problem}; correct this line") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: invalid file: got no keys, expected a task of lm-eval; correct the file")
    merged: dict[str, Any] = {}
    given = found.get("include", [])
    for one in given if isinstance(given, list) else [given]:
        if not isinstance(one, str):
            raise _error(str(path), "include", repr(one), "paths", "write the path of a file")
        merged |= _read(path.parent / one, (*above, path.resolve()))
    return merged | found


def _check_key(where: str, name: str, value: Any) -> None:
    """Raise BadInput if a key needs Python code or is not supported."""
    if functions := list(_functions(value)):
        raise _error(
            where, str(name), f"!function {functions[0]}", "a template of Jinja", "rewrite it, since no code is run"
        )
    if name in KEYS or name in _IGNORED or value in (None, False, "", [], {}) or (name, value) == ("repeats", 1):
        return
    raise _error(where, str(name), "a key", f"one of {', '.join(KEYS)}", "remove it, or score this task with lm-eval")


def _functions(value: Any) -> Any:
    if isinstance(value, _Function):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _functions(one)
    elif isinstance(value, list):
        for one in value:
            yield from _functions(one)


def _text(where: str, found: Mapping[str, Any], name: str, default: str = "") -> str:
    """A key with text. A number is text, too: lm-eval reads `doc_to_target: 0` as the first choice."""
    value = found.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _error(where, name, repr(value), "text", "change the file")
    return str(value)


def _template(where: str, found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    text = str(value) if isinstance(value, list) else _text(where, found, name)
    if why := check_template(text):
        raise _error(where, name, f"a template that is not valid ({why})", "a template of Jinja", "correct it")
    return text


def _metrics(where: str, found: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    known, given = METRICS[kind], found.get("metric_list")
    if given is None:
        return tuple(known[name] for name in DEFAULTS[kind])
    metrics = list[str]()
    for one in given if isinstance(given, list) else [given]:
        name = one.get("metric") if isinstance(one, dict) else one
        if not isinstance(one, dict) or name not in known:
            raise _error(where, "metric_list", repr(name), f"{' or '.join(known)} for {kind}", "remove this metric")
        expected = _AGGREGATIONS.get(str(name), "mean")
        if one.get("aggregation", expected) != expected:
            raise _error(where, f"{name}.aggregation", repr(one["aggregation"]), expected, "remove this metric")
        if more := [key for key in one if key not in ("metric", "aggregation", "higher_is_better") and one[key]]:
            raise _error(where, f"metric_list.{name}", f"the option {more[0]}", "none", "remove this option")
        metrics.append(known[str(name)])
    return tuple(dict.fromkeys(metrics))


def _kind(where: str, found: Mapping[str, Any], kind: str, metrics: tuple[str, ...]) -> Kinds:
    if kind == "loglikelihood_rolling":
        return PerplexityTask(metrics=metrics)
    if kind == "generate_until":
        return _generation(where, found, metrics)
    delimiter = _text(where, found, "target_delimiter", " ") if kind == "multiple_choice" else ""
    labelled: dict[str, Any] = {"label": "label", "labels": tuple(map(str, range(_MOST_LABELS)))}
    return LoglikelihoodChoice(
        context="{contexts}",
        choices=("{continuations}",),
        target_delimiter=delimiter,
        metrics=metrics,
        **(labelled if kind == "multiple_choice" else {}),
    )


def _generation(where: str, found: Mapping[str, Any], metrics: tuple[str, ...]) -> Generation:
    """Greedy generation until one of the stop texts, by default the delimiter of examples."""
    given = found.get("generation_kwargs") or {}
    known = ("until", "max_gen_toks", "max_new_tokens", "do_sample", "temperature")
    if strange := [name for name in given if name not in known]:
        raise _error(where, f"generation_kwargs.{strange[0]}", "a key", " or ".join(known), "remove it")
    is_sampled = given.get("do_sample", float(given.get("temperature") or 0) > 0)
    if is_sampled:
        raise _error(where, "generation_kwargs.do_sample", "sampling", "greedy decoding", "set do_sample: false")
    until = given.get("until", found.get("fewshot_delimiter", "\n\n"))
    stop = tuple(until) if isinstance(until, list) else (until,)
    if not all(isinstance(one, str) for one in stop):
        raise _error(where, "generation_kwargs.until", repr(until), "a text or a list of texts", "change it")
    one = next((text for text in stop if len(text) == 1), "")  # ends the generation of an answer early
    longest = given.get("max_gen_toks", given.get("max_new_tokens", _LONGEST))
    _check_filters(where, found)
    how = GenerationSettings(zero_shot=True, until=one, max_new_tokens=longest, max_source_length=0)
    return LmEvalGeneration(prompt="{prompt}", answer="{answers}", stop=stop, generation=how, metrics=metrics)


def _check_filters(where: str, found: Mapping[str, Any]) -> None:
    """Raise BadInput for filters other than those that take the first answer and remove blanks."""
    for one in found.get("filter_list") or []:
        for step in one.get("filter", []) if isinstance(one, dict) else [{}]:
            name = step.get("function") if isinstance(step, dict) else None
            if name not in ("take_first", "remove_whitespace"):
                expected = "take_first or remove_whitespace"
                raise _error(where, "filter_list", repr(name), expected, "remove it, or score this task with lm-eval")


def _note(found: Mapping[str, Any], kind: str) -> str:
    named = ", ".join(f"{theirs} is {ours}" for theirs, ours in METRICS[kind].items() if theirs != ours)
    notes = [f"Names of lm-eval: {named}." if named else ""]
    if kind == "multiple_choice":
        notes.append("Equally likely choices share the credit; lm-eval takes the first of them.")
    if kind == "loglikelihood_rolling":
        notes.append("Windows have the trained sequence length, as in other perplexity tasks of Sesame.")
    if kind == "generate_until":
        notes.append("Blanks around an answer do not count, as with lm-eval's filter remove_whitespace.")
    return " ".join(filter(None, notes))


# The files


def _splits(where: str, found: Mapping[str, Any], metrics: tuple[str, ...]) -> dict[str, SplitRecords]:
    """The split that lm-eval scores: test, or validation if there is no test split."""
    test, validation = (_text(where, found, f"{name}_split") for name in ("test", "validation"))
    if not (test or validation):
        raise _error(where, "test_split", "no split", "test_split or validation_split", "name a split")
    config = found.get("fewshot_config") or {}
    if strange := [name for name in config if name not in ("sampler", "split")]:
        raise _error(where, f"fewshot_config.{strange[0]}", "a key", "sampler or split", "remove it")
    number = found.get("num_fewshot") or 0
    named = config.get("split") or _text(where, found, "fewshot_split")
    shots = named or _text(where, found, "training_split") or validation or test
    if not isinstance(number, int) or number < 0:
        raise _error(where, "num_fewshot", repr(number), "an integer of at least 0", "change the number")
    if config.get("sampler", "default") not in ("default", "first_n"):
        raise _error(where, "fewshot_config.sampler", repr(config["sampler"]), "default or first_n", "change it")
    choices = found.get("doc_to_choice")
    fixed = list(choices.values()) if isinstance(choices, dict) else choices if isinstance(choices, list) else []
    if not all(isinstance(one, str) for one in fixed):
        strange = next(one for one in fixed if not isinstance(one, str))
        raise _error(where, "doc_to_choice", repr(strange), "texts", 'put the choices in quotes, as "no"')
    texts: dict[str, Any] = {
        "output_type": found.get("output_type", "generate_until"),
        "doc_to_text": _template(where, found, "doc_to_text"),
        "doc_to_target": _template(where, found, "doc_to_target"),
        "doc_to_choice": "" if fixed else _template(where, found, "doc_to_choice"),
        "fixed_choices": tuple(fixed),
        "description": _template(where, found, "description"),
        "target_delimiter": _text(where, found, "target_delimiter", " "),
        "fewshot_delimiter": _text(where, found, "fewshot_delimiter", "\n\n"),
        "num_fewshot": number,
        "sampler": config.get("sampler", "default"),
        "excludes_itself": named == test,
        "is_normalized": not {"accuracy_character", "accuracy_byte"}.isdisjoint(metrics),
    }
    if texts["output_type"] == "multiple_choice" and not (fixed or texts["doc_to_choice"]):
        raise _error(where, "doc_to_choice", "none", "choices, for multiple_choice", "add the key")
    if not texts["doc_to_target"]:
        raise _error(where, "doc_to_target", "none", "a template or a column", "add the key")
    pool = (_records(where, found, shots),) if number else ()
    scored = _records(where, found, test or validation)
    values = {name: getattr(scored, name) for name in ("paths", "format", "fallbacks")}
    fallbacks = tuple(
        LmEvalRecords(paths=one.paths, format=one.format, fewshot=pool, **texts) for one in scored.fallbacks
    )
    split = LmEvalRecords(**(values | texts | {"fewshot": pool, "fallbacks": fallbacks}))
    return {"test" if test else "dev": split}


def _records(where: str, found: Mapping[str, Any], split: str) -> SplitRecords:
    """The files of a split of `datasets`: those of data_files, or of a directory with this name."""
    path, name = _text(where, found, "dataset_path"), _text(where, found, "dataset_name")
    given = dict(found.get("dataset_kwargs") or {})
    files = given.pop("data_files", None)
    folder = given.pop("data_dir", "")
    given.pop("trust_remote_code", None)
    format = _FORMATS.get(path)
    if path == "csv" and (separator := given.pop("sep", None) or given.pop("delimiter", None)) and separator != ",":
        format = TableFormat(delimiter=separator)
    if given:
        remedy = "remove it, or score this task with lm-eval"
        raise _error(where, f"dataset_kwargs.{next(iter(given))}", "a key", "data_files or data_dir", remedy)
    if not path:
        raise _error(where, "dataset_path", "none", "json, parquet, csv, or a directory", "add the key")
    if format is None:
        return _in_directory(path, name or folder, split)
    named = files.get(split) if isinstance(files, dict) else files if split == "train" else None
    if named is None:
        known = ", ".join(files) if isinstance(files, dict) else "train"
        expected = f"{known}, since data_files has no other split" if files else "a split of dataset_kwargs.data_files"
        raise _error(where, "split", repr(split), expected, "write data_files as a mapping of splits to files")
    paths = [str(Path(folder) / str(one)) for one in (named if isinstance(named, list) else [named])]
    if len(paths) > 1:
        raise _error(where, "data_files", f"{len(paths)} files", "one path, with * for several", "use a pattern")
    return SplitRecords(paths=tuple(paths), format=format)


def _in_directory(path: str, name: str, split: str) -> SplitRecords:
    """The files of a dataset in a local directory with the name of the dataset, or with the last part of it."""
    short = path.rstrip("/").rpartition("/")[2]
    folders = tuple(dict.fromkeys(f"{one}/{name}" if name else one for one in (path.rstrip("/"), short)))
    first = SplitRecords(paths=folders, format=DatasetsFormat(split=split, as_stored=True))
    others: tuple[tuple[str, Formats], ...] = (
        (".jsonl", JsonlFormat()),
        (".json", JsonlFormat()),
        (".csv", CsvFormat()),
    )
    return replace(
        first,
        fallbacks=tuple(
            SplitRecords(paths=tuple(f"{folder}/{split}{ending}" for folder in folders), format=format)
            for ending, format in others
        ),
    )
