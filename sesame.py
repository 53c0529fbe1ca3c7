"""Sesame from Python: the sequences, batches, model, short training and scores of a recipe, a line each.

    import sesame

    bert = sesame.open("bert_base", scale="tiny", data="demo")
    bert.examples()         # what the model sees at a step, decoded, with what it predicts
    bert.batch()            # the same as tensors
    bert.model()            # a torch module: as a run begins, or as it ended
    bert.train(steps=20)    # a short run, through Ray, tracked by MLflow
    bert.evaluate()         # downstream scores, beside a randomly initialized baseline

These are the jobs of the command `sesame`, with its folders, its files and its errors: what the one has made, the other
finds done. An error that can be mended is a SesameError of one line. `python -m sesame` is the command. Importing this
module imports nothing heavy: a method imports what it needs when it is called.

A file training.py of the user, or a directory of such a name, would hide a package of Sesame: that is one line here. A
file sesame.py of the user hides this module itself, which nothing here can tell.
"""

import codecs
import json
import locale
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import accumulate, pairwise
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

_PACKAGES: Final = ("preprocessing", "pipeline", "training", "orchestration")


def _require_own_packages() -> None:
    """ImportError in one line if a file or package of the user hides one of ours; no code of the user is run.

    A directory without an __init__.py hides nothing: ours is imported instead, as Python does it where both are on its
    path. The command prints the line and exits with code 2.
    """
    hiding = list[Path]()
    for name in _PACKAGES:
        ours, spec = Path(__file__).with_name(name) / "__init__.py", _spec_of(name)
        if spec is None or not ours.is_file():  # an incomplete installation: the import says what is missing
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
    """What `import name` would import, or has imported."""
    try:
        return find_spec(name)
    except ValueError:  # a module that was made by hand
        return None


def _import_own(name: str, file: Path) -> None:
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
    missing_module,
    with_article,
)

if TYPE_CHECKING:
    from torch import Tensor

    from orchestration.config import Recipe
    from orchestration.jobs import Job, JobFlags
    from orchestration.progress import Report
    from orchestration.terminal.inspect import DecodedExample
    from preprocessing.manifest import Manifest
    from training.model import Model
    from training.run import Run
    from training.tasks import TaskScore

__all__ = [
    "BadInput",
    "DataError",
    "Diverged",
    "ExampleList",
    "MiscountedLoss",
    "Preempted",
    "ResourceError",
    "ScoreList",
    "SesameError",
    "Session",
    "command",
    "open",
    "recipes",
]

IN_UTF8: Final = "SESAME_IN_UTF8"  # in the environment: it was started again already
N = TypeVar("N", int, float)
Progress = Literal["auto", "rich", "plain", "none"]


def open(
    recipe: str,
    *overrides: str,
    scale: str = "",
    data: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    output_dir: str | PathLike[str] = "work",
    cluster: str = "local",
    seed: int | None = None,
    holdout_ratio: float | None = None,
    progress: Progress = "auto",
) -> "Session":
    """A recipe on a text: a name of `recipes()` or a .yaml file, with overrides as "optimizer.learning_rate=2e-4".

    `scale`: "tiny" takes minutes on two cores. `data`: other text than the recipe's, files, folders, globs or a corpus.
    `holdout_ratio`: the fraction of it for validation and downstream tasks, .01 where none is given. `output_dir`:
    where everything is written. `cluster`: its name or file. Nothing is made here; what does not fit is BadInput.
    """
    from orchestration.jobs import JobFlags

    recipe = _path("recipe", recipe, "the name of a recipe (sesame.recipes()), or a .yaml file")
    flags = JobFlags(
        recipe=recipe,
        overrides=[
            _word("overrides", one, 'text as "optimizer.learning_rate=2e-4", one after another') for one in overrides
        ],
        scale=_word("scale", scale, '"tiny", "small" or ""'),
        data=_paths(data),
        holdout_ratio=None
        if holdout_ratio is None
        else _number("holdout_ratio", holdout_ratio, float, "a share from 0 up, below 1"),
        output_dir=Path(_path("output_dir", output_dir, "a path of a folder")),
        cluster=_path("cluster", cluster, "the name of a cluster, or a .yaml file"),
        seed=None if seed is None else _number("seed", seed, int, "a whole number"),
    )
    return Session(flags, progress)


def recipes() -> list[str]:
    """The names of the recipes that come with Sesame."""
    from orchestration.config import list_names

    return list_names("recipes")


class Session:
    """One recipe on one text under one folder; each method makes what it needs and is not there yet."""

    job: "Job"
    """What is done, its stages and their folders."""

    def __init__(self, flags: "JobFlags", progress: Progress = "auto") -> None:
        from orchestration.jobs import JobFlags

        if not isinstance(flags, JobFlags):
            raise BadInput(
                f"flags is {_shown(flags)}, allowed is JobFlags of orchestration.jobs; sesame.open makes them"
            )
        if progress not in get_args(Progress):
            raise BadInput(f"progress is {_shown(progress)}, allowed is one of {', '.join(get_args(Progress))}")
        self._progress: Progress = progress
        self._open(flags)

    def _open(self, flags: "JobFlags") -> None:
        from orchestration.jobs import open_job

        self._flags, self.job = flags, open_job(flags)

    def __repr__(self) -> str:
        recipe, stages = self.job.recipe, self.job.plan
        states = ", ".join(f"{stage.name} {stage.state}" for stage in (stages.corpus, stages.run))
        return f"{recipe.name} on {self.job.corpus.name}, {recipe.num_steps:,} steps ({states})"

    @property
    def recipe(self) -> "Recipe":
        """All values of the recipe."""
        return self.job.recipe

    @property
    def folder(self) -> Path:
        """Of the run: its checkpoints, weights and scores."""
        return self.job.plan.run.folder

    @property
    def command(self) -> str:
        """The command line that does all of it, from text to scores."""
        return self._flags.command("run")

    def corpus(self) -> "Manifest":
        """Vocabulary and corpus, made where they are not there yet: the manifest, with the ledger of what was read.

        Before they are made it is said, on stderr, how the text is read, what of it is not, and what is held out.
        """
        from orchestration.jobs import corpus
        from orchestration.terminal import announce

        if self.job.plan.corpus.state != "done":
            announce(self.job.plan[:3], [*self.job.source_notes, *self.job.expected_problems])
        with self._report() as report:
            return corpus.corpus(self.job, (), report)

    def examples(self, step: int = 0, count: int = 4) -> "ExampleList":
        """The first rows of the batch of a step, decoded, as `sesame inspect` shows them; they print as text."""
        from orchestration.terminal.inspect import decode_examples

        step = _number("step", step, int, "a whole number from 0 up")
        count = _number("count", count, int, "a whole number from 1 up")
        return ExampleList(decode_examples(self._run(), step, count))

    def batch(self, step: int = 0) -> "dict[str, Tensor]":
        """All rows of a step as the model takes them: ids laid end to end, lengths, targets and where these are."""
        import torch

        from training.data import open_loader

        step = _number("step", step, int, "a whole number from 0 up")
        run = self._run()
        whole = 2 * max(phase.global_batch_size * phase.seq_length for phase in run.phases)
        machine = replace(run.engine, padding="unpadded", dataloader_num_workers=0, micro_batch_tokens=whole)
        if not 0 <= step < run.steps:
            raise BadInput(f"step is {step}, this run has the steps 0 to {run.steps - 1}")
        (batch,) = open_loader(replace(run, engine=machine), rank=0, world=1).at(step)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def model(self) -> "Model":
        """The net, to be called with a batch; its weights are those of the finished run, else those it begins with."""
        from orchestration.launch import WEIGHTS
        from training.formats import build_model, load_weights

        model = build_model(self._run())
        if self.job.plan.run.state == "done":
            model.load_state_dict(load_weights(self.folder / WEIGHTS)[1], strict=False)
        return model.eval()

    def train(self, steps: int | None = None, resume: Literal["allow", "never", "must"] = "allow") -> dict[str, Any]:
        """Pretrain, or go on, or find it done: steps, tokens, loss and last evaluation.

        `steps`: fewer than the recipe has. That is another run, with phases and warm-up in proportion; from here on
        this session is about it.
        """
        from orchestration.jobs import tasks_without_text
        from orchestration.jobs import train as pretrain

        if steps is not None:
            steps = _number("steps", steps, int, "a whole number")
        if resume not in ("allow", "never", "must"):
            raise BadInput(f"resume is {_shown(resume)}, allowed is allow, never or must")
        if steps is not None and steps != self.recipe.num_steps:
            self._open(replace(self._flags, overrides=(*self._flags.overrides, *_shorter(self.recipe, steps))))
        self.corpus()
        tasks_without_text(self.job.plan.corpus, self.recipe.eval_tasks)
        with self._report() as report:
            return pretrain(self.job, resume, report)

    def evaluate(
        self,
        *tasks: str | Sequence[str],
        csv: str | Sequence[str] = (),
        task_data_dir: "str | PathLike[str] | None" = None,
        num_seeds: int = 0,
        max_train_samples: int | Sequence[int] = 0,
        baseline: Literal["none", "random_init"] = "random_init",
        **grid: Any,
    ) -> "ScoreList":
        """Evaluate the run on downstream tasks (by default those of its recipe), and a randomly initialized baseline.

        `tasks`: names, groups and files, or lists of them. `csv`: your own tables, "my.csv:text,label". `num_seeds`:
        fine-tunings of each trial (0: as many as the grid says, or 3). `max_train_samples`: labeled examples, one
        number or several (0: all; of held-out documents 200). `grid`: `learning_rates`, `batch_sizes`, `epochs`,
        `max_steps`, `max_seq_length` and `frozen_features` replace those of the paper's grid; `grid` names another one.
        BadInput if a task does not exist, a value has the wrong type, or no task uses one of these values.
        """
        from orchestration.jobs import eval_request, eval_target, eval_tasks_of, evaluate, score_plan

        files = None if task_data_dir is None else Path(_path("task_data_dir", task_data_dir, "a path of a folder"))
        named = [name for each in tasks for one in _listed("tasks", each, str) for name in one.split(",")]
        tables = _listed("csv", csv, str)
        if baseline not in ("none", "random_init"):
            raise BadInput(f"baseline is {_shown(baseline)}, allowed is none or random_init")
        how = _grid_values({"num_seeds": num_seeds, "max_train_samples": max_train_samples, **grid})
        net, cluster = eval_target.subject_of(self._flags), self.job.cluster
        wanted = eval_request.EvalRequest(
            tasks=eval_request.tasks_from_words(named or ([] if tables else eval_tasks_of(self._flags)), tables),
            task_data_dir=files,
            with_baseline=baseline == "random_init",
            machine=cluster.engine,
            **how,
        )
        plans = (score_plan.plan_tasks if named or tables else score_plan.plan_supported_tasks)(net, wanted)
        score_plan.check_flags(plans, wanted)
        with self._report() as report:
            return ScoreList(evaluate.evaluate(net.folder, plans, cluster, report))

    def export(self, folder: str | PathLike[str], *, heads: bool = True, license: str = "unknown") -> list[str]:
        """A folder for `from_pretrained` of transformers; the names of its files."""
        from orchestration.jobs import export as export_model
        from orchestration.jobs import run_folder

        target = Path(_path("folder", folder, "a path of a folder"))
        license = _word("license", license, "text")
        run = run_folder(self._flags)
        return export_model(run, target, heads=heads, license=license)[0]

    def _run(self) -> "Run":
        """The run as workers get it, on a corpus that is made."""
        self.corpus()
        return self.job.pretraining()

    @contextmanager
    def _report(self) -> "Iterator[Report]":
        from orchestration.terminal import show_progress

        with show_progress(self._progress) as report:
            yield report


class ExampleList(list["DecodedExample"]):
    """Rows as a model sees them, which print as text: what is predicted stands in brackets behind its token."""

    def __repr__(self) -> str:
        from orchestration.terminal.inspect import render_examples

        return _text(render_examples(self))


class ScoreList(list["TaskScore"]):
    """One comparison for each task, which print as a table."""

    def __repr__(self) -> str:
        from orchestration.reports import score_rows
        from orchestration.terminal import views

        return _text(views.scores(score_rows(self)))


_SHOWN: Final = 60  # characters of a value in an error
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
}


def _grid_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of fine-tunings, as a request takes it; BadInput for another name, or a value of another kind.

    >>> _grid_values({"learning_rates": 1e-3, "max_train_samples": [0, 200], "max_steps": 4})
    {'learning_rates': (0.001,), 'max_train_samples': (200,), 'max_steps': 4}
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in _LISTS:
            values = _listed(name, value, _LISTS[name])
            found[name] = tuple(filter(None, values) if name == "max_train_samples" else values)
        elif name in _ALONE:
            values = [None] if value is None else _listed(name, value, _ALONE[name])
            if len(values) != 1:
                raise BadInput(f"{name} is {value!r}, allowed is one value")
            found[name] = values[0]
        else:
            raise BadInput(f"{name}: evaluate has no such value; it has {', '.join([*_LISTS, *_ALONE])}")
    return found


def _listed(name: str, value: Any, kind: type) -> list[Any]:
    """A value alone, or each of several; BadInput where one is of another kind."""
    alone = isinstance(value, str) or not isinstance(value, Iterable)
    found = [value] if alone else list(value)
    for one in found:
        if isinstance(one, bool) or not isinstance(one, int | float if kind is float else kind):
            words = {float: "numbers", int: "whole numbers", str: "text"}[kind]
            raise BadInput(f"{name} is {value!r}, allowed is {words}: one, or a list of them")
    return [float(one) for one in found] if kind is float else found


def _shown(value: object) -> str:
    """A value in an error: itself where it is short, else what it is.

    >>> _shown(1.5), _shown({"text": "x" * 99})
    ('1.5', 'a dict')
    """
    said = repr(value) if isinstance(value, str | int | float | bytes | None) else ""
    return said if 0 < len(said) <= _SHOWN else with_article(type(value).__name__)


def _word(name: str, value: object, allowed: str) -> str:
    """Text; BadInput where it is something else."""
    if not isinstance(value, str):
        raise BadInput(f"{name} is {_shown(value)}, allowed is {allowed}")
    return value


def _path(name: str, value: object, allowed: str) -> str:
    """Text or a path, as text; BadInput where it is something else."""
    found = fspath(value) if isinstance(value, PathLike) else value
    return _word(name, found, allowed)


def _paths(data: object) -> list[str]:
    """What `data` names, one or several; BadInput where it is text in memory."""
    if isinstance(data, str | PathLike):
        return [_path("data", data, "a path")]
    allowed = "paths (files, folders, globs), or the name of a corpus: one, or a list of them"
    if not isinstance(data, list | tuple):
        is_table = not isinstance(data, str | int | float | bytes | None)
        saved = "; save it, as Parquet or JSON lines or with save_to_disk, and give its path" if is_table else ""
        raise BadInput(f"data is {_shown(data)}, allowed are {allowed}{saved}")
    return [_path(f"data[{number}]", one, allowed) for number, one in enumerate(data)]


def _number(name: str, value: Any, kind: type[N], allowed: str) -> N:
    """A number; BadInput where it is something else."""
    is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if not is_number:
        raise BadInput(f"{name} is {_shown(value)}, allowed is {allowed}")
    return kind(value)


def _shorter(recipe: "Recipe", steps: int) -> list[str]:
    """Overrides that give a recipe so many steps in all: each phase keeps its share, the warm-up its own."""
    total = recipe.num_steps
    if not 1 < steps < total:
        raise BadInput(f"steps is {steps}, allowed is a number from 2 to {total}, which the recipe has")
    upto = [round(steps * stop / total) for stop in accumulate(phase.steps for phase in recipe.phases)]
    counts = [stop - start for start, stop in pairwise([0, *upto])]
    phases = [
        asdict(phase)
        | {"steps": count, "warmup_steps": phase.warmup_steps and max(1, phase.warmup_steps * steps // total)}
        for phase, count in zip(recipe.phases, counts, strict=True)
        if count
    ]
    warmup = min(recipe.optimizer.warmup_steps, max(1, recipe.optimizer.warmup_steps * steps // total))
    short = [f"phases={json.dumps(phases)}", f"optimizer.warmup_steps={warmup}"]
    return short + (
        [f"optimizer.lr_decay_steps={max(1, recipe.optimizer.lr_decay_steps * steps // total)}"]
        if recipe.optimizer.lr_decay_steps
        else []
    )


def _text(shown: Any) -> str:
    """What a terminal would show, as plain text."""
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
    """Start this process again in Python's UTF-8 mode (PEP 540) where the locale has another encoding.

    Files and arguments are UTF-8 then, in all processes that are started from here; what the terminal cannot show is
    escaped.
    """
    if sys.flags.utf8_mode or codecs.lookup(locale.getencoding()).name == "utf-8" or os.environ.get(IN_UTF8):
        return
    streams = {"PYTHONIOENCODING": f"{sys.stdout.encoding}:backslashreplace"}
    sys.stdout.flush()
    os.execve(sys.executable, sys.orig_argv, streams | os.environ | {"PYTHONUTF8": "1", IN_UTF8: "1"})


def command() -> int:
    """Run the command line of this process; its exit code, 4 where this Python lacks what the command needs."""
    _restart_in_utf8()
    try:
        from orchestration.cli import main
    except ModuleNotFoundError as error:
        print(f"sesame: {missing_module(error)}", file=sys.stderr)
        return ResourceError.exit_code
    return main()


if __name__ == "__main__":
    sys.exit(command())
