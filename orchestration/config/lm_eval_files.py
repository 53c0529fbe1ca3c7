"""Reads a task file of lm-eval as a task: a YAML file without Python code, whose data are local files.

KEYS and OUTPUT_TYPES are the only places that know lm-eval's names. A key that changes a prompt or a score, and is not
supported, is refused by its name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from orchestration.config.error_messages import invalid
from orchestration.config.library import is_shipped_task
from preprocessing.errors import BadInput
from training.evaluation.files import CsvFormat, DatasetsFormat, Formats, JsonlFormat, ParquetFormat, TableFormat
from training.evaluation.tasks import (
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
_AGGREGATIONS: Final = {  # of the metrics that are not means
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
    where = str(path)
    try:
        keys = _Keys(where, _read(path, ()))
        keys.check()
        kind = keys.text("output_type", "generate_until")
        if kind not in OUTPUT_TYPES:
            raise keys.error("output_type", repr(kind), " or ".join(OUTPUT_TYPES), "change the file")
        output = OUTPUT_TYPES[kind]
        metrics = _metrics(keys, kind)
        name = keys.text("task") or path.stem
        return TaskFile(
            name=f"lm_eval_{name}" if is_shipped_task(name) else name,
            description=f"lm-eval task of {path.name}",
            citation=where,
            files=_splits(keys, kind, metrics),
            task=output.make(keys, metrics),
            note=_note(output),
        )
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{where}: {error}; change the file") from None


@dataclass(frozen=True)
class _Keys:
    """The keys of a file, and one-line errors that begin with its path."""

    where: str
    found: Mapping[str, Any]

    def error(self, key: str, got: str, expected: str, remedy: str) -> BadInput:
        return BadInput(f"{self.where}: {invalid(key, got, expected, remedy)}")

    def check(self) -> None:
        """Raise BadInput if a key needs Python code or is not supported."""
        if isinstance(self.found.get("task"), list) or "group" in self.found:
            raise self.error("group", "a group of tasks", "a file with one task", "name the files of its tasks")
        for name, value in self.found.items():
            if functions := list(_functions(value, set())):
                remedy = "rewrite it, since no code is run"
                raise self.error(str(name), f"!function {functions[0]}", "a template of Jinja", remedy)
            is_unset = value in (None, False, "", [], {}) or (name, value) == ("repeats", 1)
            if not (name in KEYS or name in _IGNORED or is_unset):
                expected = f"one of {', '.join(KEYS)}"
                raise self.error(str(name), "a key", expected, "remove it, or score this task with lm-eval")

    def text(self, name: str, default: str = "") -> str:
        """A key with text. A number is text, too: lm-eval reads `doc_to_target: 0` as the first choice."""
        value = self.found.get(name)
        return default if value is None else self.text_of(name, value)

    def text_of(self, name: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(name, repr(value), "text", "change the file")
        return str(value)

    def template(self, name: str) -> str:
        value = self.found.get(name)
        text = str(value) if isinstance(value, list) else self.text(name)
        if why := check_template(text):
            raise self.error(name, f"a template that is not valid ({why})", "a template of Jinja", "correct it")
        return text

    def mapping(self, name: str, known: Sequence[str]) -> dict[str, Any]:
        """A key with keys of its own, {} if it is not given. BadInput if one of them is not among the known ones."""
        value = self.found.get(name) or {}
        if not isinstance(value, dict):
            raise self.error(name, repr(value), "keys with values", "change the file")
        if strange := [one for one in value if one not in known]:
            remedy = "remove it, or score this task with lm-eval"
            raise self.error(f"{name}.{strange[0]}", "a key", " or ".join(known), remedy)
        return value

    def mappings(self, name: str, value: Any) -> list[dict[str, Any]]:
        """A list whose elements have keys; an element alone is a list, too."""
        elements = value if isinstance(value, list) else [value]
        if strange := [one for one in elements if not isinstance(one, dict)]:
            raise self.error(name, repr(strange[0]), "a list whose elements have keys", "change the file")
        return elements


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
            raise _Keys(str(path), {}).error("include", repr(one), "paths", "write the path of a file")
        merged |= _read(path.parent / one, (*above, path.resolve()))
    return merged | found


def _functions(value: Any, seen: set[int]) -> Iterator[_Function]:
    """The functions in a value. Each list is visited once: an alias may stand in many places, or in itself."""
    if isinstance(value, _Function):
        yield value
    elif isinstance(value, dict | list) and id(value) not in seen:
        seen.add(id(value))
        for one in value.values() if isinstance(value, dict) else value:
            yield from _functions(one, seen)


# The output types


@dataclass(frozen=True)
class _OutputType:
    """An output type of lm-eval: its metrics, and the task that it becomes."""

    metrics: Mapping[str, str]  # names of lm-eval, and those of the task
    default_metrics: tuple[str, ...]  # lm-eval's, if the file has no metric_list
    make: Callable[[_Keys, tuple[str, ...]], Kinds]
    note: str = ""  # differences from lm-eval's scores
    needs: tuple[str, ...] = ("doc_to_text", "doc_to_target")


def _make_choice(keys: _Keys, metrics: tuple[str, ...]) -> Kinds:
    return LoglikelihoodChoice(
        context="{contexts}",
        choices=("{continuations}",),
        target_delimiter=keys.text("target_delimiter", " "),
        metrics=metrics,
        label="label",
        labels=tuple(map(str, range(_MOST_LABELS))),
    )


def _make_likelihood(keys: _Keys, metrics: tuple[str, ...]) -> Kinds:
    return LoglikelihoodChoice(context="{contexts}", choices=("{continuations}",), target_delimiter="", metrics=metrics)


def _make_rolling(keys: _Keys, metrics: tuple[str, ...]) -> Kinds:
    return PerplexityTask(metrics=metrics)


def _make_generation(keys: _Keys, metrics: tuple[str, ...]) -> Kinds:
    """Greedy generation until one of the stop texts, by default the delimiter of examples."""
    given = keys.mapping("generation_kwargs", ("until", "max_gen_toks", "max_new_tokens", "do_sample", "temperature"))
    temperature = given.get("temperature") or 0
    if given.get("do_sample", float(keys.text_of("generation_kwargs.temperature", temperature)) > 0):
        raise keys.error("generation_kwargs.do_sample", "sampling", "greedy decoding", "set do_sample: false")
    until = given.get("until", keys.text("fewshot_delimiter", "\n\n"))
    stop = tuple(until) if isinstance(until, list) else (until,)
    if not all(isinstance(one, str) for one in stop):
        raise keys.error("generation_kwargs.until", repr(until), "a text or a list of texts", "change it")
    one = next((text for text in stop if len(text) == 1), "")  # ends the generation of an answer early
    longest = given.get("max_gen_toks", given.get("max_new_tokens", _LONGEST))
    if type(longest) is not int or longest < 1:
        raise keys.error("generation_kwargs.max_gen_toks", repr(longest), "an integer of at least 1", "change it")
    _check_filters(keys)
    how = GenerationSettings(zero_shot=True, until=one, max_new_tokens=longest, max_source_length=0)
    return LmEvalGeneration(prompt="{prompt}", answer="{answers}", stop=stop, generation=how, metrics=metrics)


def _check_filters(keys: _Keys) -> None:
    """Raise BadInput for filters other than those that take the first answer and remove blanks."""
    for one in keys.mappings("filter_list", keys.found.get("filter_list") or []):
        for step in keys.mappings("filter_list.filter", one.get("filter") or []):
            if step.get("function") not in ("take_first", "remove_whitespace"):
                got, expected = repr(step.get("function")), "take_first or remove_whitespace"
                raise keys.error("filter_list", got, expected, "remove it, or score this task with lm-eval")


OUTPUT_TYPES: Final[Mapping[str, _OutputType]] = {
    "multiple_choice": _OutputType(
        {
            "acc": "accuracy",
            "acc_norm": "accuracy_character",
            "acc_bytes": "accuracy_byte",
            "acc_mutual_info": "accuracy_unconditional",
        },
        ("acc", "acc_norm"),
        _make_choice,
        "Equally likely choices share the credit; lm-eval takes the first of them.",
        needs=("doc_to_text", "doc_to_target", "doc_to_choice"),
    ),
    "loglikelihood": _OutputType(
        {"perplexity": "perplexity", "acc": "last_word"}, ("perplexity", "acc"), _make_likelihood
    ),
    "loglikelihood_rolling": _OutputType(
        {name: name for name in ("word_perplexity", "byte_perplexity", "bits_per_byte")},
        ("word_perplexity", "byte_perplexity", "bits_per_byte"),
        _make_rolling,
        "Windows have the trained sequence length, as in other perplexity tasks of Sesame.",
        needs=("doc_to_target",),
    ),
    "generate_until": _OutputType(
        {"exact_match": "exact_match"},
        ("exact_match",),
        _make_generation,
        "Blanks around an answer do not count, as with lm-eval's filter remove_whitespace.",
    ),
}


def _metrics(keys: _Keys, kind: str) -> tuple[str, ...]:
    output, given = OUTPUT_TYPES[kind], keys.found.get("metric_list")
    if given is None:
        return tuple(output.metrics[name] for name in output.default_metrics)
    metrics = list[str]()
    for one in keys.mappings("metric_list", given):
        name = one.get("metric")
        if not isinstance(name, str) or name not in output.metrics:
            expected = f"{' or '.join(output.metrics)} for {kind}"
            raise keys.error("metric_list", repr(name), expected, "remove this metric")
        expected = _AGGREGATIONS.get(name, "mean")
        if one.get("aggregation", expected) != expected:
            raise keys.error(f"{name}.aggregation", repr(one["aggregation"]), expected, "remove this metric")
        if more := [key for key in one if key not in ("metric", "aggregation", "higher_is_better") and one[key]]:
            raise keys.error(f"metric_list.{name}", f"the option {more[0]}", "none", "remove this option")
        metrics.append(output.metrics[name])
    return tuple(dict.fromkeys(metrics))


def _note(output: _OutputType) -> str:
    named = ", ".join(f"{theirs} is {ours}" for theirs, ours in output.metrics.items() if theirs != ours)
    return " ".join(filter(None, (f"Names of lm-eval: {named}." if named else "", output.note)))


# The files


def _splits(keys: _Keys, kind: str, metrics: tuple[str, ...]) -> dict[str, SplitRecords]:
    """The split that lm-eval scores: test, or validation if there is no test split."""
    test, validation = keys.text("test_split"), keys.text("validation_split")
    if not (test or validation):
        raise keys.error("test_split", "no split", "test_split or validation_split", "name a split")
    config = keys.mapping("fewshot_config", ("sampler", "split"))
    sampler = config.get("sampler", "default")
    if sampler not in ("default", "first_n"):
        raise keys.error("fewshot_config.sampler", repr(sampler), "default or first_n", "change it")
    split = config.get("split")
    named = keys.text("fewshot_split") if split is None else keys.text_of("fewshot_config.split", split)
    number = keys.found.get("num_fewshot") or 0
    if not isinstance(number, int) or number < 0:
        raise keys.error("num_fewshot", repr(number), "an integer of at least 0", "change the number")
    for name in OUTPUT_TYPES[kind].needs:
        if keys.found.get(name) in (None, [], {}) or (name != "doc_to_text" and keys.found[name] == ""):
            raise keys.error(name, "none", f"a template or a column, for {kind}", "add the key")
    fixed = _list_choices(keys)
    texts: dict[str, Any] = {
        "output_type": kind,
        "doc_to_text": keys.template("doc_to_text"),
        "doc_to_target": keys.template("doc_to_target"),
        "doc_to_choice": "" if fixed else keys.template("doc_to_choice"),
        "fixed_choices": fixed,
        "description": keys.template("description"),
        "target_delimiter": keys.text("target_delimiter", " "),
        "fewshot_delimiter": keys.text("fewshot_delimiter", "\n\n"),
        "num_fewshot": number,
        "sampler": sampler,
        "excludes_itself": named == test,
        "is_normalized": not {"accuracy_character", "accuracy_byte", "accuracy_unconditional"}.isdisjoint(metrics),
    }
    pool = (_records(keys, named or keys.text("training_split") or validation or test),) if number else ()
    scored = _records(keys, test or validation)
    fallbacks = tuple(
        LmEvalRecords(paths=one.paths, format=one.format, fewshot=pool, **texts) for one in scored.fallbacks
    )
    split = LmEvalRecords(paths=scored.paths, format=scored.format, fewshot=pool, fallbacks=fallbacks, **texts)
    return {"test" if test else "dev": split}


def _list_choices(keys: _Keys) -> tuple[str, ...]:
    """The choices of all questions; () if they are a template or a column."""
    choices = keys.found.get("doc_to_choice")
    fixed = list(choices.values()) if isinstance(choices, dict) else choices if isinstance(choices, list) else []
    if strange := [one for one in fixed if not isinstance(one, str)]:
        raise keys.error("doc_to_choice", repr(strange[0]), "texts", 'put the choices in quotes, as "no"')
    return tuple(fixed)


def _records(keys: _Keys, split: str) -> SplitRecords:
    """The files of a split of `datasets`: those of data_files, or of a directory with this name."""
    path, name = keys.text("dataset_path"), keys.text("dataset_name")
    if not path:
        raise keys.error("dataset_path", "none", "json, parquet, csv, or a directory", "add the key")
    known = ("data_files", "data_dir", "trust_remote_code", *(("sep", "delimiter") if path == "csv" else ()))
    given = keys.mapping("dataset_kwargs", known)
    files, folder = given.get("data_files"), keys.text_of("dataset_kwargs.data_dir", given.get("data_dir") or "")
    if path not in _FORMATS:
        return _in_directory(path, name or folder, split)
    named = files.get(split) if isinstance(files, dict) else files if split == "train" else None
    if named is None:
        splits = ", ".join(map(str, files)) if isinstance(files, dict) else "train"
        expected = f"{splits}, since data_files has no other split" if files else "a split of dataset_kwargs.data_files"
        raise keys.error("split", repr(split), expected, "write data_files as a mapping of splits to files")
    paths = named if isinstance(named, list) else [named]
    if len(paths) != 1:
        raise keys.error("data_files", f"{len(paths)} files", "one path, with * for several", "use a pattern")
    separator = keys.text_of("dataset_kwargs.sep", given.get("sep") or given.get("delimiter") or ",")
    return SplitRecords(
        paths=(str(Path(folder) / keys.text_of("data_files", paths[0])),),
        format=_FORMATS[path] if separator == "," else TableFormat(delimiter=separator),
    )


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
