"""The Python interface of Sesame: decoded sequences, batches, model, training and scores of a recipe.

    import sesame

    bert = sesame.open("bert_base", scale="tiny", data="demo")
    bert.examples()         # sequences of a step, decoded, with the predicted tokens and their labels
    bert.where("some text") # the steps that trained on a document with this text, and those that will
    bert.batch()            # a batch of a step, as tensors
    bert.model()            # the model as a torch module, with initial or trained weights
    bert.train(steps=20)    # a short run with Ray and MLflow
    bert.evaluate()         # downstream scores, with a randomly initialized baseline
    bert.predict("a ___ .") # the most probable tokens at a blank

    old = sesame.open("gpt2_tiny-1a2b3c4d")    # a run, by its name, directory or MLflow ID
    old.generate("Return the", greedy=True)

    classifier = sesame.open("my_classifier")  # a fine-tuned model, by its directory
    classifier.predict("a fine film")          # its labels with probabilities

The methods run the same jobs as the command `sesame`, with the same directories, files and errors: each finds the
results of the other. An error that the user can correct is a SesameError with a message of one line. `python -m
sesame` runs the command. Importing this module is fast, because each method imports its packages when it is called.

A file training.py of the user, or a directory with such a name, would hide a package of Sesame; importing this module
then fails with one line. A file sesame.py of the user hides this module itself, and no check can report that.
"""

import codecs
import gc
import locale
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import CO_VARARGS
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar, get_args

_PACKAGES: Final = ("preprocessing", "pipeline", "training", "orchestration")


def _require_own_packages() -> None:
    """Raise ImportError if a file or package of the user hides a package of Sesame. No code of the user is run.

    A directory without an __init__.py hides nothing: the package of Sesame is imported instead, as Python does if both
    are on its path. The command prints the message and exits with code 2.
    """
    hiding = list[Path]()
    for name in _PACKAGES:
        ours, spec = Path(__file__).with_name(name) / "__init__.py", _spec_of(name)
        if spec is None or not ours.is_file():  # an incomplete installation: the import below names the missing package
            continue
        if spec.origin is None or not Path(spec.origin).is_file():
            _import_own(name, ours)
        elif not os.path.samefile(spec.origin, ours):
            path = Path(spec.origin)
            hiding.append(path.parent if path.name == "__init__.py" else path)
    if not hiding:
        return
    is_one, place = len(hiding) == 1, hiding[0].parent
    message = (
        f"cannot import Sesame: {' and '.join(map(str, hiding))} {'hides' if is_one else 'hide'} "
        f"{f'its package {hiding[0].stem}' if is_one else 'packages of it'}; rename {'it' if is_one else 'them'}, or "
        + ("run from another directory" if place == Path.cwd() else f"remove {place} from the Python path")
    )
    if __name__ == "__main__" or Path(sys.argv[0]).name == "sesame":
        print(f"sesame: {message}", file=sys.stderr)
        raise SystemExit(2)
    raise ImportError(message)


def _spec_of(name: str) -> ModuleSpec | None:
    """The spec of the module that `import name` imports or has imported; None if there is none."""
    try:
        return find_spec(name)
    except ValueError:  # a module without a spec, created by a program
        return None


def _import_own(name: str, file: Path) -> None:
    """Import a package of Sesame from its file."""
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


_require_own_packages()

from preprocessing.errors import (  # noqa: E402
    BadInput,
    DataError,
    Diverged,
    MiscountedLoss,
    Preempted,
    ResourceError,
    SesameError,
    explain_missing_module,
    with_article,
)

if TYPE_CHECKING:
    from torch import Tensor

    from orchestration.config import Recipe
    from orchestration.evaluation.label_prediction import LabelPrediction
    from orchestration.evaluation.prediction import TokenPrediction
    from orchestration.jobs import DocumentUses, DocumentUsesResult, Job, JobFlags
    from orchestration.jobs.finetuned_source import FinetunedSource
    from orchestration.progress import Report
    from orchestration.terminal.inspect import DecodedExample, InspectedStep
    from preprocessing.manifest import Manifest
    from training.evaluation.tasks import TaskScore
    from training.model import Model
    from training.run import Run

__all__ = [
    "BadInput",
    "DataError",
    "Diverged",
    "DocumentUsesList",
    "ExampleList",
    "GeneratedList",
    "MiscountedLoss",
    "PredictionList",
    "Preempted",
    "ResourceError",
    "ScoreList",
    "SesameError",
    "Session",
    "command",
    "open",
    "recipes",
]

IN_UTF8: Final = "SESAME_IN_UTF8"  # environment variable: this process was already restarted in UTF-8 mode
N = TypeVar("N", int, float)
P = ParamSpec("P")
R = TypeVar("R")
Progress = Literal["auto", "rich", "plain", "none"]

_ARGUMENTS: Final = dict[str, tuple[list[str], str]]()
"""Public function -> the names of its arguments, and of the one that has all values without a name."""


def _check_names(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with a BadInput that names the right argument instead of a TypeError for an unknown one."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = [name for name in code.co_varnames[:count] if name != "self"]
    _ARGUMENTS[function.__name__] = names, code.co_varnames[count] if code.co_flags & CO_VARARGS else ""

    @wraps(function)
    def call(*values: P.args, **named: P.kwargs) -> R:
        for name in named:
            if name not in _list_arguments(function.__name__):
                raise _explain_argument(function.__name__, name)
        return function(*values, **named)

    return call


@_check_names
def open(
    recipe: str,
    *overrides: str,
    scale: str = "",
    data: Any = (),
    text_key: str = "",
    output_dir: str | PathLike[str] = "work",
    cluster: str = "local",
    seed: int | None = None,
    holdout_ratio: float | None = None,
    progress: Progress = "auto",
) -> "Session":
    """A session for a recipe and a text, for a run that exists, or for a fine-tuned model.

    `recipe`: a name of `recipes()` or a .yaml file, or the name, the directory or the MLflow ID of a run below
    `output_dir`, or the directory of a fine-tuned model. `overrides`: for example "optimizer.learning_rate=2e-4".
    `scale`: "tiny" takes minutes on two cores. `data`: files, directories, globs or a corpus, instead of the corpus of
    the recipe; or texts: a Dataset of `datasets`, a DataFrame, an Arrow table, a list of mappings, or an iterable of
    strings or mappings. A list of strings has paths; pass texts as `iter(texts)`. `text_key`: the column or key of the
    text (default: "text", or the only one of strings). `holdout_ratio`: the fraction of the text for validation and
    downstream tasks (default .01).
    `output_dir`: the directory for all results. `cluster`: the name or file of a cluster.

    This function creates no files, unless `data` has texts: it writes them once, to `output_dir`/data. BadInput if an
    argument is invalid.
    """
    from orchestration.jobs import JobFlags

    folder = Path(_path("output_dir", output_dir, "the path of a directory"))
    recipe = _path("recipe", recipe, "the name of a recipe (sesame.recipes()), or a .yaml file")
    flags = JobFlags(
        recipe=recipe,
        overrides=[
            _word("overrides", one, 'text like "optimizer.learning_rate=2e-4", one argument each') for one in overrides
        ],
        scale=_word("scale", scale, '"tiny", "small" or ""'),
        holdout_ratio=None
        if holdout_ratio is None
        else _number("holdout_ratio", holdout_ratio, float, "a number of at least 0 and below 1"),
        output_dir=folder,
        cluster=_path("cluster", cluster, "the name of a cluster, or a .yaml file"),
        seed=None if seed is None else _number("seed", seed, int, "an integer"),
    )
    paths, notes = _paths(data, _word("text_key", text_key, "the name of a column or key"), folder)
    try:
        return Session(replace(flags, data=paths), progress, notes)
    except BadInput as error:
        if isinstance(data, list | tuple) and "no such file" in str(error):
            raise BadInput(f"{error}; if data has texts, not paths, pass iter(data)") from None
        raise


def recipes() -> list[str]:
    """The names of the recipes that Sesame ships."""
    from orchestration.config import list_names

    return list_names("recipes")


class Session:
    """A recipe, a text and an output directory, or a run. Each method first runs the missing stages that it needs.

    A finished run is used as it is: its text need not exist any more. A fine-tuned model only predicts and is
    evaluated; other methods raise BadInput.
    """

    def __init__(self, flags: "JobFlags", progress: Progress = "auto", notes: Sequence[str] = ()) -> None:
        from orchestration.jobs import JobFlags

        if not isinstance(flags, JobFlags):
            raise BadInput(
                f"invalid flags: got {_display(flags)}, expected JobFlags of orchestration.jobs; "
                "call sesame.open instead"
            )
        if progress not in get_args(Progress):
            raise _invalid("progress", progress, f"one of {', '.join(get_args(Progress))}")
        self._progress: Progress = progress
        self._notes = list(notes)
        self._open(flags)

    def _open(self, flags: "JobFlags") -> None:
        from orchestration.jobs import match_run, open_job

        self._flags, self._of_run, self._job = flags, match_run(flags), None
        self._finetuned = None if self._of_run else _match_finetuned(flags)
        if not (self._of_run or self._finetuned):
            self._job = open_job(flags)

    @property
    def job(self) -> "Job":
        """The job: its recipe, its stages, and their directories."""
        from orchestration.jobs import open_job

        self._refuse_finetuned()
        if self._job is None:
            self._job = open_job(self._flags)
        return self._job

    def __repr__(self) -> str:
        if self._of_run:
            from orchestration.jobs import summarize_run

            return str(summarize_run(self._of_run))
        if self._finetuned:
            labels = f" ({', '.join(self._finetuned.labels)})" if self._finetuned.labels else ""
            return f"{self._finetuned.folder}: fine-tuned model, {self._finetuned.kind}{labels}"
        recipe, stages = self.job.recipe, self.job.plan
        states = ", ".join(f"{stage.name} {stage.state}" for stage in (stages.corpus, stages.run))
        return f"{recipe.name} on {self.job.corpus.name}, {recipe.num_steps:,} steps ({states})"

    @property
    def recipe(self) -> "Recipe":
        """All values of the recipe."""
        return self.job.recipe

    @property
    def folder(self) -> Path:
        """The directory of the run, with its checkpoints, weights and scores; that of a fine-tuned model."""
        if self._finetuned:
            return self._finetuned.folder
        return self._of_run or self.job.plan.run.folder

    @property
    def command(self) -> str:
        """The command line that runs all stages, from text to scores; that which evaluates a fine-tuned model."""
        return self._flags.command("eval" if self._finetuned else "run")

    def corpus(self) -> "Manifest":
        """Build tokenizer and corpus unless they exist, and return the manifest with its ledger of documents.

        Before the build, stderr shows how the text is read, which files are left out, and the held-out fraction.
        """
        from orchestration.jobs import corpus
        from orchestration.terminal import announce

        if self._is_finished_run():
            from preprocessing.manifest import Manifest

            return Manifest.load(Path(self._run().corpus))
        if self.job.plan.corpus.state != "done":
            announce(self.job.plan[:3], [*self._notes, *self.job.source_notes, *self.job.expected_problems])
        with self._report() as report:
            manifest = corpus.corpus(self.job, (), report)
        if self.job.has_estimated_steps:
            self._job = None  # now the corpus determines the number of steps
        return manifest

    @_check_names
    def examples(self, step: int = 0, count: int = 4) -> "ExampleList":
        """The first `count` sequences of a step, decoded as by `sesame inspect`.

        The list prints as text, and a notebook shows it as the page of `sesame inspect --html`; `html()` returns that
        page.
        """
        from orchestration.terminal.inspect import inspect_step

        step = _number("step", step, int, "an integer of at least 0")
        count = _number("count", count, int, "an integer of at least 1")
        return ExampleList(inspect_step(self._run(), step, range(count)))

    @_check_names
    def where(
        self, document: str, *, is_text: bool = False, steps: range | None = None, max_documents: int = 5
    ) -> "DocumentUsesList":
        """The steps and rows that trained on a document, and those that will, as by `sesame where`.

        `document`: the first digits of a key, or a piece of text, for which the cleaned text is searched; `is_text`
        searches digits as text, too. `steps`: the steps to search (default: all of the run). At most `max_documents`
        documents that contain the text have uses. The list prints as tables. BadInput if there is no such document.
        """
        from orchestration.jobs import find_uses

        if steps is not None and not (isinstance(steps, range) and steps.step == 1):
            raise _invalid("steps", steps, "a range of consecutive steps, such as range(100)")
        with self._report() as report:
            found = find_uses(
                self._run(),
                _word("document", document, "a key or a text"),
                report,
                is_text=is_text,
                steps=steps,
                most=_number("max_documents", max_documents, int, "an integer of at least 1"),
            )
        return DocumentUsesList(found)

    @_check_names
    def batch(self, step: int = 0) -> "dict[str, Tensor]":
        """The batch of a step as the model reads it: concatenated token IDs, lengths, targets and target positions."""
        import torch

        from training.data import open_loader

        step = _number("step", step, int, "an integer of at least 0")
        run = self._run()
        whole = 2 * max(phase.global_batch_size * phase.seq_length for phase in run.phases)
        machine = replace(run.engine, padding="unpadded", dataloader_num_workers=0, micro_batch_tokens=whole)
        if not 0 <= step < run.steps:
            raise BadInput(
                f"invalid step: got {step}, expected a step from 0 to {run.steps - 1}; give a step of this run"
            )
        (batch,) = open_loader(replace(run, engine=machine), rank=0, world=1, trains=False).at(step)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def model(self) -> "Model":
        """The model, which can be called with a batch. It has initial weights until the run is finished."""
        from orchestration.launch import WEIGHTS
        from training.formats import build_model, load_weights

        model = build_model(self._run())
        if self._is_finished_run() or self.job.plan.run.state == "done":
            model.load_state_dict(load_weights(self.folder / WEIGHTS)[1], strict=False)
        return model.eval()

    @_check_names
    def train(self, steps: int | None = None, resume: Literal["allow", "never", "must"] = "allow") -> dict[str, Any]:
        """Pretrain the model, or resume the run, and return its steps, tokens, loss and last evaluation.

        A finished run is not repeated. `steps`: fewer steps than the recipe has. This is another run, with shorter
        phases and warm-up in proportion, and the session then refers to that run.
        """
        from orchestration.config import shorten
        from orchestration.jobs import choose_micro_batch, tasks_without_text
        from orchestration.jobs import train as pretrain
        from orchestration.terminal import announce

        if steps is not None:
            steps = _number("steps", steps, int, "an integer")
        if self._of_run and steps is not None:
            raise BadInput(f"invalid steps: got {steps} for a run that exists, expected none; leave it out")
        if self._of_run and self._is_finished_run() and resume != "never":
            from orchestration.jobs import result_of

            return result_of(self._of_run)
        if resume not in ("allow", "never", "must"):
            raise _invalid("resume", resume, "allow, never or must")
        if steps is not None and steps != self.recipe.num_steps:
            shorten(self.recipe, steps, "steps")  # its error names the argument
            self._open(replace(self._flags, max_steps=steps))
        self.corpus()
        tasks_without_text(self.job.plan.corpus, self.recipe.eval_tasks)
        if self.job.plan.run.state != "done" or resume == "never":
            announce((), choose_micro_batch(self.job, resume)[1])
        with self._report() as report:
            return pretrain(self.job, resume, report)

    @_check_names
    def evaluate(
        self,
        *tasks: str | Sequence[str],
        csv: str | Sequence[str] = (),
        task_data_dir: "str | PathLike[str] | None" = None,
        num_seeds: int = 0,
        max_train_samples: int | Sequence[int] = 0,
        baseline: Literal["none", "random_init"] = "random_init",
        save: "str | PathLike[str] | None" = None,
        **grid: Any,
    ) -> "ScoreList":
        """Evaluate the run and a randomly initialized baseline on downstream tasks, by default those of the recipe.

        A fine-tuned model is only scored, by default on its own task, and has no baseline.
        `tasks`: names, groups and files, or lists of them. `csv`: your own tables, e.g. "my.csv:text,label".
        `num_seeds`: number of fine-tunings per trial (0: the number in the grid, or 3). `max_train_samples`: number of
        labeled examples, one or several (0: all; for tasks of held-out documents 200). `learning_rates`,
        `batch_sizes`, `epochs`, `max_steps`, `max_seq_length` and `frozen_features` replace values of the paper's
        grid; `grid` is the name of another grid. `best=True` keeps the weights with the best dev score of
        `num_evaluations` evaluations (default 10), and `early_stopping_patience` stops a fine-tuning after that many
        evaluations without a better one. `save`: a new directory for the fine-tuned model; with several tasks it has a
        directory for each, and stderr names the saved trial. BadInput if a task does not exist, a value has the wrong
        type, or no task uses a value.
        """
        from orchestration.config import tasks_from_words
        from orchestration.evaluation import eval_request, eval_target, evaluate, saved_models, score_plan
        from orchestration.jobs import cluster_of, eval_tasks_of, finetuned_source
        from orchestration.terminal import announce

        files = (
            None if task_data_dir is None else Path(_path("task_data_dir", task_data_dir, "the path of a directory"))
        )
        named = [name for each in tasks for one in _make_list("tasks", each, str) for name in one.split(",")]
        tables = _make_list("csv", csv, str)
        if baseline not in ("none", "random_init"):
            raise _invalid("baseline", baseline, "none or random_init")
        grid_values = _grid_values({"num_seeds": num_seeds, "max_train_samples": max_train_samples, **grid})
        target, cluster = eval_target.subject_of(self._flags), cluster_of(self._flags)
        if self._finetuned and save is not None:
            raise BadInput(
                f"save: {self._finetuned.folder} is a fine-tuned model, which is only scored; leave save out"
            )
        own, lines = list[Any](), list[str]()
        if self._finetuned and not named and not tables:
            task, directory = finetuned_source.task_of(self._finetuned)
            own, files = [task], files or directory
        words = named or ([] if tables or own else eval_tasks_of(self._flags))
        request = eval_request.EvalRequest(
            tasks=own or tasks_from_words(words, tables, lines.append),
            task_data_dir=files,
            with_baseline=baseline == "random_init" and not self._finetuned,
            machine=cluster.engine,
            **grid_values,
        )
        announce((), lines)
        is_named = named or tables or own
        plans = (score_plan.plan_tasks if is_named else score_plan.plan_supported_tasks)(target, request)
        score_plan.check_flags(plans, request)
        saves = None
        if save is not None:
            place = Path(_path("save", save, "the path of a directory"))
            saves = saved_models.plan_saves(target, plans, place, "sesame.open(...).evaluate(..., save=...)")
        with self._report() as report:
            command = "sesame.open(...).evaluate(...)"
            out = self._flags.output_dir
            scores = evaluate.evaluate(target.folder, plans, cluster, report, out, command=command, saves=saves)
        if saves:
            announce((), saves.notes)  # which trial was saved, and why
        return ScoreList(scores)

    @_check_names
    def generate(
        self,
        *prompts: "str | list[str]",
        max_new_tokens: int = 64,
        greedy: bool = False,
        num_beams: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        num_return_sequences: int = 1,
        repetition_penalty: float = 1.0,
        masked_decoding: Literal["", "gibbs", "mask_predict"] = "",
        sample_index: int = 0,
        stream: Callable[[str], object] | None = None,
    ) -> "GeneratedList":
        """Texts that continue the prompts, as by `sesame generate`; the list prints as text.

        Several prompts are several arguments, or a list; they are decoded together. `stream` receives the prompts and
        texts in parts, as soon as tokens are chosen: `stream=sys.stdout.write`. It is not for beam search and masked
        decoding.

        An encoder-decoder reads a prompt as its source. A masked language model needs `masked_decoding`, and fills
        `max_new_tokens` masks at ___ or after the prompt. Equal arguments give equal texts; another `sample_index`
        gives other ones. BadInput if the run is not finished, or if the model cannot generate in this way.
        """
        from orchestration.jobs.generation import can_stream, generate_texts, select_set

        values = select_set(greedy=greedy, num_beams=num_beams, temperature=temperature, top_k=top_k, top_p=top_p)
        if stream is not None and not (callable(stream) and can_stream(values, masked_decoding)):
            expected = "a function, without num_beams and masked_decoding"
            raise BadInput(f"invalid stream: got {_display(stream)}, expected {expected}; leave it out")
        each = [one for prompt in prompts for one in (prompt if isinstance(prompt, list) else [prompt])]
        _require_texts("prompts", each)
        rows = generate_texts(
            self._run_folder(),
            [_word("prompts", prompt, "text") for prompt in each],
            values=values,
            max_new_tokens=_number("max_new_tokens", max_new_tokens, int, "an integer of at least 1"),
            seed=_number("sample_index", sample_index, int, "an integer of at least 0"),
            masked=masked_decoding,
            num_return_sequences=_number("num_return_sequences", num_return_sequences, int, "an integer of at least 1"),
            repetition_penalty=_number("repetition_penalty", repetition_penalty, float, "a number above 0"),
            write=stream,
        )
        return GeneratedList(rows, masked_decoding)

    @_check_names
    def predict(self, *texts: "str | tuple[str, str] | list[Any]", top_k: int = 5) -> "PredictionList":
        """The `top_k` most probable tokens at the blank ___ of each text; without a blank, after the text.

        A fine-tuned model predicts the `top_k` most probable labels of each text, or of each pair of texts: a tuple of
        two. A regression predicts a number. Several texts are several arguments, or a list.

        BadInput if the run is not finished, or if the model predicts neither tokens nor labels.
        """
        from orchestration.evaluation.label_prediction import predict_labels
        from orchestration.evaluation.prediction import predict_tokens

        each = [one for text in texts for one in (text if isinstance(text, list) else [text])]
        _require_texts("texts", each)
        most = _number("top_k", top_k, int, "an integer of at least 1")
        if self._finetuned:
            return PredictionList(predict_labels(self._finetuned, [_text_or_pair(one) for one in each], most))
        words = [_word("texts", text, "text") for text in each]
        return PredictionList(predict_tokens(self._run_folder(), words, most))

    @_check_names
    def export(self, folder: str | PathLike[str], *, heads: bool = True, license: str = "unknown") -> list[str]:
        """Write a directory for `from_pretrained` of transformers, and return the names of its files."""
        from orchestration.jobs import export as export_model

        target = Path(_path("folder", folder, "the path of a directory"))
        license = _word("license", license, "text")
        return export_model(self._run_folder(), target, heads=heads, license=license)[0]

    def _run_folder(self) -> Path:
        """The directory of the run. BadInput for a recipe that is not trained, and for a fine-tuned model."""
        from orchestration.jobs import run_folder

        self._refuse_finetuned()
        return run_folder(self._flags)

    def _refuse_finetuned(self) -> None:
        """Raise BadInput if the session was opened for a fine-tuned model."""
        if self._finetuned:
            raise BadInput(
                f"{self._finetuned.folder} is a fine-tuned model, which only predicts labels and is evaluated; open "
                "the model that it was fine-tuned from"
            )

    def _is_finished_run(self) -> bool:
        """Whether the session was opened for a run, which is finished."""
        from orchestration.jobs.stages import MARK

        return self._of_run is not None and (self._of_run / MARK).is_file()

    def _run(self) -> "Run":
        """The run as the workers receive it. Its corpus is built first."""
        if self._of_run and self._is_finished_run():
            from training.run import load_stored_run

            return load_stored_run(self._of_run)
        self.corpus()
        return self.job.pretraining()

    @contextmanager
    def _report(self) -> "Iterator[Report]":
        """Show progress inside the block."""
        from orchestration.terminal import show_progress

        with show_progress(self._progress) as report:
            yield report


class ExampleList(list["DecodedExample"]):
    """Decoded sequences, which print as text: the label of a predicted token follows it in parentheses."""

    def __init__(self, found: "InspectedStep") -> None:
        super().__init__(found.examples)
        self._found = found

    def __repr__(self) -> str:
        from orchestration.terminal.inspect import render_examples

        return _text(render_examples(self))

    def html(self) -> str:
        """A page with these sequences and figures of their batch, which needs no other file."""
        from orchestration.terminal.html_page import render_step

        return render_step(replace(self._found, examples=list(self)), f"step {self._found.step:,}")

    def _repr_html_(self) -> str:
        from orchestration.terminal.html_page import render_frame

        return render_frame(self.html())


class DocumentUsesList(list["DocumentUses"]):
    """Documents with the sequences that contain them, which print as tables.

    `num_found` is the number of all documents that contain the text.
    """

    def __init__(self, found: "DocumentUsesResult") -> None:
        super().__init__(found.documents)
        self._found = found

    @property
    def num_found(self) -> int:
        return self._found.num_found

    def __repr__(self) -> str:
        from orchestration.terminal.where import render_uses

        return _text(render_uses(self._found, _MAX_ROWS))


class GeneratedList(list[dict[str, Any]]):
    """Generated texts with their prompts and scores, which print as text."""

    def __init__(self, rows: Iterable[dict[str, Any]] = (), masked: Literal["", "gibbs", "mask_predict"] = "") -> None:
        super().__init__(rows)
        self._masked: Literal["", "gibbs", "mask_predict"] = masked

    def __repr__(self) -> str:
        from orchestration.jobs.generation import format_generated

        return "\n".join(format_generated(row, self._masked) for row in self)


class PredictionList(list["TokenPrediction | LabelPrediction"]):
    """Predicted tokens or labels, which print as text."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


class ScoreList(list["TaskScore"]):
    """Scores of downstream tasks, which print as a table."""

    def __repr__(self) -> str:
        from orchestration.reports import score_rows
        from orchestration.terminal import views

        return _text(views.scores(score_rows(self)))


_MAX_ROWS: Final = 20  # maximum number of printed sequences of a document
_MAX_SHOWN: Final = 60  # maximum number of characters of a value in an error
_LISTS: Final[Mapping[str, type]] = {
    "learning_rates": float,
    "batch_sizes": int,
    "epochs": float,
    "max_train_samples": int,
}
_ALONE: Final[Mapping[str, type]] = {
    "max_steps": int,
    "num_seeds": int,
    "max_seq_length": int,
    "grid": str,
    "frozen_features": str,
    "best": bool,
    "num_evaluations": int,
    "early_stopping_patience": int,
}


def _grid_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of fine-tuning, as an EvalRequest accepts them; BadInput for an unknown name or a wrong type.

    >>> _grid_values({"learning_rates": 1e-3, "max_train_samples": [0, 200], "max_steps": 4})
    {'learning_rates': (0.001,), 'max_train_samples': (200,), 'max_steps': 4}
    """
    result: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in _LISTS:
            values = _make_list(name, value, _LISTS[name])
            result[name] = tuple(filter(None, values) if name == "max_train_samples" else values)
        elif name in _ALONE:
            values = [None] if value is None else _make_list(name, value, _ALONE[name])
            if len(values) != 1:
                raise BadInput(f"invalid {name}: got {value!r}, expected one value; pass one value")
            result[name] = values[0]
        else:
            raise _explain_argument("evaluate", name)
    return result


def _list_arguments(function: str) -> list[str]:
    """The names of the arguments of a public function."""
    names = _ARGUMENTS[function][0]
    return list(dict.fromkeys([*_LISTS, *_ALONE, *names])) if function == "evaluate" else names


def _explain_argument(function: str, given: str) -> BadInput:
    """The error for an argument that a public function does not have: it names the right argument or key.

    >>> print(_explain_argument("generate", "max_length"))
    invalid argument of generate: got max_length, expected max_new_tokens; rename it
    >>> print(_explain_argument("open", "max_steps"))
    invalid argument of open: got max_steps, expected an argument of open; use train(steps=...)
    """
    from orchestration.config import find_nearest, find_override, glossary, invalid

    def explain(expected: str, remedy: str) -> BadInput:
        return BadInput(invalid(f"argument of {function}", given, expected, remedy))

    own, unnamed = _list_arguments(function), _ARGUMENTS[function][1]
    meant = [glossary.plain(option) for option in glossary.option_names(given, "", "task")]
    if unnamed in (given, f"{given}s"):
        return explain(f"{unnamed} without a name", f'write them first, as in {function}("...")')
    if name := next((one for one in meant if one in own), ""):
        return explain(name, "rename it")
    if nearest := find_nearest(given, own, cutoff=0.85):
        return explain(f"an argument of {function}", f"did you mean {nearest}?")
    settings = ("open", "train")  # of a training; other functions use the trained model
    key = glossary.key_of(given) or find_override(given) if function in settings else ""
    for other in dict.fromkeys([*settings, *([] if key else _ARGUMENTS)]):
        if name := next((one for one in meant if one in _list_arguments(other)), ""):
            place = "sesame.open" if other == "open" else other
            return explain(f"an argument of {function}", f"use {place}({name}=...)")
    if key:
        return explain(f'"{key}=VALUE", because it is a key', "pass this text to sesame.open")
    if nearest := find_nearest(given, own, cutoff=0.6):
        return explain(f"an argument of {function}", f"did you mean {nearest}?")
    return explain(f"one of {', '.join(own)}", "rename it or leave it out")


def _make_list(name: str, value: Any, kind: type) -> list[Any]:
    """A single value as a list, or the values of a list; BadInput if a value has another type."""
    is_single = isinstance(value, str) or not isinstance(value, Iterable)
    values = [value] if is_single else list(value)
    for one in values:
        if isinstance(one, bool) != (kind is bool) or not isinstance(one, int | float if kind is float else kind):
            words = {float: "numbers", int: "integers", str: "text", bool: "True or False"}[kind]
            raise BadInput(f"invalid {name}: got {value!r}, expected {words}; pass one or a list of them")
    return [float(one) for one in values] if kind is float else values


def _display(value: object) -> str:
    """A value for an error message: its repr if that is short, else its type.

    >>> _display(1.5), _display({"text": "x" * 99})
    ('1.5', 'a dict')
    """
    text = repr(value) if isinstance(value, str | int | float | bytes | None) else ""
    return text if 0 < len(text) <= _MAX_SHOWN else with_article(type(value).__name__)


def _invalid(name: str, value: object, expected: str) -> BadInput:
    """The error for an argument with an invalid value."""
    return BadInput(f"invalid {name}: got {_display(value)}, expected {expected}; change the argument")


def _require_texts(name: str, given: Sequence[object]) -> None:
    """Raise BadInput if there is no text."""
    if not given:
        raise BadInput(f"invalid {name}: got none, expected at least one text; pass one")


def _word(name: str, value: object, expected: str) -> str:
    """The value; BadInput if it is not text."""
    if not isinstance(value, str):
        raise _invalid(name, value, expected)
    return value


def _match_finetuned(flags: "JobFlags") -> "FinetunedSource | None":
    """The fine-tuned model in the directory that the flags name; None if they name none."""
    if not os.path.isfile(Path(flags.recipe) / "config.json"):  # a name may be too long for a path
        return None
    from orchestration.jobs.finetuned_source import match_finetuned

    return match_finetuned(flags)


def _text_or_pair(value: object) -> str | tuple[str, str]:
    """The value; BadInput if it is neither text nor a tuple of two texts."""
    if isinstance(value, tuple) and len(value) == 2:
        return _word("texts", value[0], "text"), _word("texts", value[1], "text")
    return _word("texts", value, "text, or a tuple of two texts")


def _path(name: str, value: object, expected: str) -> str:
    """A text or path, as text; BadInput for another type."""
    return _word(name, fspath(value) if isinstance(value, PathLike) else value, expected)


def _paths(data: object, text_key: str, output_dir: Path) -> tuple[list[str], list[str]]:
    """The paths in `data`, one or several, and lines about texts in memory, which are written to a file first.

    BadInput for an object that has neither paths nor texts.
    """
    from orchestration.jobs import write_texts

    if found := write_texts(data, output_dir, text_key):
        return [found[0]], [found[1]]
    mark = f"#{text_key}" if text_key else ""
    if isinstance(data, str | PathLike):
        return [_path("data", data, "a path") + mark], []
    expected = "a path (file, directory or glob), the name of a corpus, a list of them, or texts"
    if not isinstance(data, list | tuple):
        raise _invalid("data", data, expected)
    if data == []:  # texts of a program that found none: the corpus of the recipe would be a silent surprise
        raise BadInput("invalid data: got an empty list, expected one or more paths or texts; fill it or leave it out")
    paths = [_path(f"data[{number}]", one, expected) for number, one in enumerate(data)]
    return [path + mark for path in paths], []


def _number(name: str, value: Any, kind: type[N], expected: str) -> N:
    """The value as a number of this type; BadInput if it is not a number."""
    is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if not is_number:
        raise _invalid(name, value, expected)
    return kind(value)


def _text(shown: Any) -> str:
    """The output of a terminal, as plain text."""
    from rich.console import Console

    console = Console(width=100, color_system=None, force_jupyter=False, force_terminal=False)
    with console.capture() as captured:
        console.print(shown)
    return captured.get().rstrip()


def __getattr__(name: str) -> str:
    if name == "__version__":
        from orchestration.version import sesame_version

        return sesame_version()
    raise AttributeError(f"module 'sesame' has no attribute {name!r}")


def _restart_in_utf8() -> None:
    """Restart this process in Python's UTF-8 mode (PEP 540) if the locale has another encoding.

    Files and arguments are then UTF-8 in this process and its child processes. Characters that the terminal cannot show
    are escaped.
    """
    if sys.flags.utf8_mode or codecs.lookup(locale.getencoding()).name == "utf-8" or os.environ.get(IN_UTF8):
        return
    streams = {"PYTHONIOENCODING": f"{sys.stdout.encoding}:backslashreplace"}
    sys.stdout.flush()
    os.execve(sys.executable, sys.orig_argv, streams | os.environ | {"PYTHONUTF8": "1", IN_UTF8: "1"})


def command() -> int:
    """Run the command line of this process and return its exit code: 4 if a required module is not installed."""
    _restart_in_utf8()
    # The imports create millions of objects that stay until the end. Garbage collections during the imports and at exit
    # would search all of them, which takes a second of CPU time.
    gc.set_threshold(50_000, 20, 20)
    try:
        from orchestration.cli import main
    except ModuleNotFoundError as error:
        print(f"sesame: {explain_missing_module(error)}", file=sys.stderr)
        return ResourceError.exit_code
    try:
        return main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(command())
