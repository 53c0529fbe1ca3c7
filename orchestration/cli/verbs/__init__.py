"""The verbs of `sesame`, a file each, in the order of `sesame --help`."""

from collections.abc import Callable, Mapping
from typing import Final

from orchestration.cli.verbs.ablation import ablation
from orchestration.cli.verbs.check import check
from orchestration.cli.verbs.compare import compare
from orchestration.cli.verbs.corpus import corpus
from orchestration.cli.verbs.doctor import doctor
from orchestration.cli.verbs.evaluate import evaluate
from orchestration.cli.verbs.export import export
from orchestration.cli.verbs.generate import generate
from orchestration.cli.verbs.inspect import inspect
from orchestration.cli.verbs.keys import keys
from orchestration.cli.verbs.logs import logs
from orchestration.cli.verbs.plan import plan
from orchestration.cli.verbs.recipes import recipes
from orchestration.cli.verbs.register import register
from orchestration.cli.verbs.run import run
from orchestration.cli.verbs.runs import runs
from orchestration.cli.verbs.status import status
from orchestration.cli.verbs.stop import stop
from orchestration.cli.verbs.submit import submit
from orchestration.cli.verbs.tasks import tasks
from orchestration.cli.verbs.train import train
from orchestration.cli.verbs.ui import ui
from orchestration.cli.verbs.where import where

VERBS: Final[Mapping[str, Callable[..., int]]] = {
    "recipes": recipes,
    "keys": keys,
    "tasks": tasks,
    "check": check,
    "plan": plan,
    "corpus": corpus,
    "train": train,
    "eval": evaluate,
    "run": run,
    "runs": runs,
    "compare": compare,
    "ablation": ablation,
    "inspect": inspect,
    "where": where,
    "export": export,
    "generate": generate,
    "register": register,
    "submit": submit,
    "status": status,
    "logs": logs,
    "stop": stop,
    "doctor": doctor,
    "ui": ui,
}

__all__ = ["VERBS"]
