"""Prompts, continuations and answers as lm-eval builds them (EleutherAI, lm_eval/api/task.py of version 0.4.13).

jinja2 is imported when a file is read: task files are listed without it.
"""

import ast
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from preprocessing.errors import BadInput
from preprocessing.spec import key, spec
from training.evaluation.files import (
    CsvFormat,
    JsonFormat,
    JsonlFormat,
    Record,
    RecordFault,
    Records,
    TableFormat,
    contents,
    exists,
)
from training.evaluation.tasks.generation import Generation
from training.evaluation.tasks.labeled_task import TaskItem
from training.evaluation.tasks.split import SplitRecords

OutputType = Literal["multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"]
SEED: Final = 1234  # seed of the few-shot examples: lm-eval's default
NO_INDEX: Final = -1  # a correct choice that is not published
_MISSING: Final = frozenset(  # cells without a value, in pandas
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
_BOOLEANS: Final = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
_INTEGER: Final = re.compile(r" *[+-]?[0-9]{1,18} *")
_NUMBER: Final = re.compile(
    r" *[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|inf|Infinity) *"
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d)?)?Z?)?")  # ISO 8601, without fractions
_FAILURES: Final = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)  # of filters of Jinja


@spec
class LmEvalRecords(SplitRecords):
    """A split whose records have the texts of an lm-eval task instead of their columns.

    Records have the columns `contexts`, `continuations` and `label` (multiple_choice, loglikelihood), `text`
    (loglikelihood_rolling), or `prompt` and `answers` (generate_until). Few-shot examples are part of the contexts.
    They are drawn from `fewshot` with Python's generator, in the order of the records, as lm-eval draws them.

    A template is the name of a column or a text of Jinja, rendered in a sandbox; an undefined name is an error.
    """

    output_type: OutputType = key(default="multiple_choice", doc="Type of the requests.")
    doc_to_text: str = key(default="", doc="Template of the question.")
    doc_to_target: str = key(default="", doc="Template of the answer.")
    doc_to_choice: str = key(default="", doc="Template of the list of choices; empty: fixed choices.")
    fixed_choices: tuple[str, ...] = key(default=(), doc="Choices of all questions.")
    description: str = key(default="", doc="Template of the text before the examples.")
    target_delimiter: str = key(default=" ", doc="Text between question and answer.")
    fewshot_delimiter: str = key(default="\n\n", doc="Text after each example.")
    num_fewshot: int = key(default=0, doc="Number of examples before each question.")
    fewshot: tuple[SplitRecords, ...] = key(default=(), doc="Split of the examples; []: none.")
    sampler: Literal["default", "first_n"] = key(default="default", doc="How examples are drawn.")
    excludes_itself: bool = key(default=False, doc="Whether the question is not one of its examples.")
    is_normalized: bool = key(
        default=False, doc="Whether a metric compares a choice with its length or with its likelihood alone."
    )

    def records(self, data: Path) -> Records:
        found = _load(self, data)
        pool = _load(self.fewshot[0], data).rows if self.num_fewshot else []
        most = len(pool) - self.excludes_itself
        if self.num_fewshot > max(0, most):
            raise BadInput(
                f"invalid num_fewshot: got {self.num_fewshot}, expected at most {max(0, most)} (the few-shot split "
                f"has {len(pool)} rows); lower it"
            )
        build = _Builder(self, list(found.rows[0]) if found.rows else [], pool)
        built = replace(found, rows=[], places=[], malformed=[*found.malformed])
        for row, place in zip(found.rows, found.places, strict=True):
            built.add(build.record(row), place)
        if self.is_normalized and any(len(row.get("contexts", ())) > 1 for row in built.rows):
            built.remarks.append(
                "each choice is a context of its own: metrics per character, per byte and without context are of the "
                "continuation, but acc_norm, acc_bytes and acc_mutual_info of lm-eval are of the context"
            )
        return built


def _load(split: SplitRecords, data: Path) -> Records:
    """The records with the values that `datasets` gives them: all columns in all rows, numbers in CSV as numbers."""
    chosen = split.select_files(data)
    if isinstance(chosen.format, JsonlFormat) and _is_json_list(chosen, data):
        chosen = replace(chosen, format=JsonFormat())
    found = SplitRecords.records(chosen, data)
    names = list(dict.fromkeys(name for row in found.rows for name in row if not name.lstrip("-").isdigit()))
    if isinstance(chosen.format, CsvFormat | TableFormat):
        columns = {name: convert_cells([row.get(name) for row in found.rows]) for name in names}
    elif isinstance(chosen.format, JsonFormat | JsonlFormat):
        columns = {name: convert_json_values([row.get(name) for row in found.rows]) for name in names}
    else:
        columns = {name: [row.get(name) for row in found.rows] for name in names}
    return replace(found, rows=[{name: columns[name][at] for name in names} for at in range(len(found.rows))])


def _is_json_list(split: SplitRecords, data: Path) -> bool:
    """Whether a JSON file is one list of objects, and not one object per line."""
    pattern = next(one for one in split.patterns if exists(data, one))
    return next(contents(data, pattern))[1].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def convert_cells(values: Sequence[Any]) -> list[Any]:
    """The values of a CSV column as pandas reads them: integers, numbers or booleans if all of them are.

    Cells such as NA are None. Integers beside a None are floats.

    >>> convert_cells(["1", " 0"]), convert_cells(["1.5", "2"]), convert_cells(["true", "NA", "False"])
    ([1, 0], [1.5, 2.0], [True, None, False])
    >>> convert_cells(["1", "x"]), convert_cells(["a", ""]), convert_cells(["1", ""])
    (['1', 'x'], ['a', None], [1.0, None])
    """
    cells = [None if value in _MISSING else value for value in values]
    texts = [cell for cell in cells if cell is not None]
    convert: Callable[[str], Any] = str
    if texts and all(text in _BOOLEANS for text in texts):
        convert = _BOOLEANS.__getitem__
    elif all(_INTEGER.fullmatch(text) for text in texts):
        convert = int if len(texts) == len(cells) else float
    elif all(_NUMBER.fullmatch(text) for text in texts):
        convert = float
    return [None if cell is None else convert(cell) for cell in cells]


def convert_json_values(values: Sequence[Any]) -> list[Any]:
    """The values of a JSON column as pyarrow reads them: one type of numbers, and dates if all texts are dates.

    >>> convert_json_values([1, 2.5, None]), convert_json_values([1, True])
    ([1.0, 2.5, None], [1, True])
    >>> [str(date) for date in convert_json_values(["2020-01-01", "2020-01-01T10:00:00Z"])]
    ['2020-01-01 00:00:00', '2020-01-01 10:00:00']
    """
    given = [value for value in values if value is not None]
    types = set(map(type, given))
    if types and types <= {int, float} and (float in types or not all(-(2**63) <= one < 2**63 for one in given)):
        return [None if value is None else float(value) for value in values]
    if types == {str} and all(map(_DATE.fullmatch, given)):
        try:
            return [None if value is None else datetime.fromisoformat(value.removesuffix("Z")) for value in values]
        except ValueError:  # such as month 13
            return list(values)
    return list(values)


class _Builder:
    """Builds the texts of questions; `features` are the names of the columns."""

    def __init__(self, how: LmEvalRecords, features: Sequence[str], pool: Sequence[Record]) -> None:
        self.how, self.features, self.pool = how, set(features), list(pool)
        self.has_choices = bool(how.doc_to_choice or how.fixed_choices)
        self.random = random.Random(SEED)

    def record(self, doc: Record) -> Record | RecordFault:
        """The texts of a question, or why it cannot be read."""
        import jinja2

        try:
            return self._texts(doc)
        except _Unusable as error:
            return RecordFault(str(error))
        except re.error as error:  # Python 3.13 gives it another name
            return RecordFault(f"invalid template: regular expression: {error.msg}, pattern {error.pattern!r}")
        except (jinja2.TemplateError, RuntimeError, *_FAILURES) as error:
            return RecordFault(f"invalid template: {type(error).__name__}: {str(error).partition(chr(10))[0]}")

    def _texts(self, doc: Record) -> Record:
        how = self.how
        target = self._target(doc)
        if how.output_type == "loglikelihood_rolling":
            return {"text": _text_of(target, "doc_to_target")}
        before = self._field(how.description, doc) + "".join(map(self._example, self._draw(doc)))
        question, choices = self._question(doc), self._choices(doc) if self.has_choices else []
        if how.output_type == "multiple_choice":
            if isinstance(question, int):
                contexts, continuations = [before + choice for choice in choices], [str(target)]
                return {"contexts": contexts, "continuations": continuations, "label": _index(question, choices)}
            context = before + _text_of(question, "doc_to_text")
            return {"contexts": [context], "continuations": choices, "label": _index(target, choices)}
        context = before + _text_of(question, "doc_to_text")
        if how.output_type == "loglikelihood":
            return {"contexts": [context], "continuations": [_text_of(target, "doc_to_target")], "label": 0}
        if choices:
            answers = [choices[target]]
        else:
            answers = [str(one) for one in target] if isinstance(target, list) else [str(target)]
        return {"prompt": context, "answers": answers}

    def _draw(self, doc: Record) -> list[Record]:
        """The few-shot examples of a question (lm_eval/api/samplers.py)."""
        count, itself = self.how.num_fewshot, self.how.excludes_itself
        if not count:
            return []
        if self.how.sampler == "first_n":
            return list(islice((one for one in self.pool if not itself or one != doc), count))
        if not itself:
            return self.random.sample(self.pool, count)
        drawn = [one for one in self.random.sample(self.pool, count + 1) if one != doc][:count]
        return drawn if len(drawn) == count else self.random.sample([one for one in self.pool if one != doc], count)

    def _example(self, doc: Record) -> str:
        question, answer = self._question(doc), self._target(doc)
        choices = self._choices(doc) if self.has_choices else []
        if isinstance(question, int):
            question = choices[question]
        elif choices and isinstance(answer, int):
            answer = choices[answer]
        elif isinstance(answer, list):
            answer = answer[0]
        question = _text_of(question, "doc_to_text of an example")
        if answer is None or answer == "":
            return question
        text = _text_of(answer, "doc_to_target of an example")
        return f"{question}{self.how.target_delimiter}{text}{self.how.fewshot_delimiter}"

    def _question(self, doc: Record) -> Any:
        if self.how.doc_to_text in self.features:
            return doc[self.how.doc_to_text]
        text = _render(self.how.doc_to_text, doc)
        return int(text) if text.isdigit() and self.has_choices else text

    def _target(self, doc: Record) -> Any:
        if self.how.doc_to_target in self.features:
            return doc[self.how.doc_to_target]
        text = _render(self.how.doc_to_target, doc)
        if text.isdigit() and self.has_choices:
            return int(text)
        if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
            try:
                return ast.literal_eval(text)
            except (SyntaxError, ValueError):
                return text
        return text

    def _choices(self, doc: Record) -> list[str]:
        template = self.how.doc_to_choice
        if not template:
            return list(self.how.fixed_choices)
        found = doc[template] if template in self.features else ast.literal_eval(_render(template, doc))
        if not isinstance(found, list) or not found:
            raise _Unusable(f"invalid doc_to_choice: got {found!r}, expected a list of texts")
        return [_text_of(one, "a choice of doc_to_choice") for one in found]

    def _field(self, template: str, doc: Record) -> str:
        if not template:
            return ""
        return _text_of(doc[template], "description") if template in doc else _render(template, doc)


class _Unusable(Exception):
    """A record without the texts of a question."""


def _text_of(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _Unusable(f"invalid {name}: got {value!r}, expected text")
    return value


def _index(gold: Any, choices: Sequence[str]) -> int:
    """The index of the correct choice, given as an index or as a text; NO_INDEX for a missing answer, null or -1."""
    if gold is None:
        return NO_INDEX
    if isinstance(gold, int):
        if gold == NO_INDEX or 0 <= gold < len(choices):
            return int(gold)
    elif isinstance(gold, str) and gold in choices:
        return choices.index(gold)
    got = "several correct choices" if isinstance(gold, list) else repr(gold)
    raise _Unusable(f"invalid answer: got {got}, expected an index of {len(choices)} choices, or one of them")


def _render(template: str, doc: Mapping[str, Any]) -> str:
    return str(_compile(template).render(**doc))


@cache
def _compile(template: str) -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = _replace
    return environment.from_string(template)


def _replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)


def check_template(template: str) -> str:
    """Why a text is not a valid template of Jinja; "" if it is.

    >>> check_template("{{ goal }} Answer:"), check_template("{{ goal")
    ('', "unexpected end of template, expected 'end of print statement'.")
    """
    import jinja2

    try:
        _compile(template)
    except jinja2.TemplateSyntaxError as error:
        return str(error.message)
    except RecursionError:
        return "too many parentheses inside each other"
    return ""


@spec
class LmEvalGeneration(Generation):
    """Generation until one of several texts (lm-eval's generate_until)."""

    stop: tuple[str, ...] = key(default=(), doc="Texts that end an answer and are not part of it.")

    numerics: ClassVar[int] = 0

    def predictions(self, items: Sequence[TaskItem], texts: Sequence[str]) -> list[str]:
        """The generated texts up to the first of the stop texts, without blanks around them."""
        return [self.generation.trim(text) for text in map(self._cut, texts)]

    def _cut(self, text: str) -> str:
        for end in filter(None, self.stop):
            text = text.partition(end)[0]
        return text
