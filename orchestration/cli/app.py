"""The typer app, its verbs in the order of `--help`, and `main`, which turns errors into one line and an exit code."""

import inspect
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from orchestration import environment, system_errors
from orchestration.cli import unknown, verbs
from orchestration.cli.groups import flatten_options
from orchestration.cli.shared import TYPED
from orchestration.signals import signals_raise
from orchestration.terminal import BEGAN_S, is_plain, print_error
from orchestration.version import sesame_version
from preprocessing import renames
from preprocessing.errors import ResourceError, SesameError, explain_missing_module

_EXTRA = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)")  # typer has no class for this error
COMPLETE = "_SESAME_COMPLETE"  # environment variable that a shell sets to ask for completions
app = typer.Typer(
    help="Pretrain the BERT and GPT family, from raw text to downstream scores. Begin with `sesame recipes`.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"sesame {sesame_version()}")
        raise typer.Exit


@app.callback()
def sesame(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version of Sesame.")
    ] = False,
) -> None:
    """Pretrain the BERT and GPT family, from raw text to downstream scores. Begin with `sesame recipes`."""


for _name, _verb in verbs.VERBS.items():
    # The part of `sesame keys` may be an option of another library, e.g. --train-iters.
    app.command(_name, context_settings={"ignore_unknown_options": _name == "keys"})(flatten_options(_verb))


def _empty_folder(words: Sequence[str]) -> str:
    """The option or argument whose directory is an empty string, which Path reads as the current directory; else "".

    >>> _empty_folder(["run", "gpt2", "-o", ""]), _empty_folder(["export", "gpt2", ""]), _empty_folder(["-o", "."])
    ('-o', 'DIR', '')
    """
    for option in ("--output-dir", "-o", "--leaderboard-dir"):
        if f"{option}=" in words or (option, "") in pairwise(words):
            return option
    return "DIR" if words[:1] == ["export"] and "" in words[1:] else ""


def _usage(error: TyperException, words: Sequence[str]) -> str:
    """The message for a usage error. For an unknown command or option, it suggests one that exists, or a key."""
    from orchestration.config import explain_option

    option = getattr(error, "option_name", "") or ""
    verb = words[0] if words else ""
    if now := renames.new_option(verb, option):
        return f"{option} was renamed to {now} in 0.2"
    if hasattr(error, "possibilities"):  # only typer's NoSuchOption, whose class is private, has them
        return unknown.explain_option(option, verb if verb in verbs.VERBS else "", _commands())
    if verb and verb not in verbs.VERBS and not verb.startswith("-"):
        return unknown.explain_command(verb)
    parameter = getattr(error, "param", None)
    if parameter and (message := explain_option(error.__cause__, _type_of(verb, parameter.name))):
        return f"invalid {_display_name(parameter)}: {message}; see `sesame {verb} --help`"
    if parameter and hasattr(error, "param_type"):  # typer's MissingParameter
        return f"missing {parameter.param_type_name}: expected {_display_name(parameter)}; see `sesame {verb} --help`"
    message = error.format_message().replace("\n", " ")
    if option and message == f"Option '{option}' requires an argument.":
        return f"invalid {option}: got no value, expected one; see `sesame {verb} --help`"
    if extra := _EXTRA.fullmatch(message):
        return (
            f"invalid arguments: got {extra[1]}, expected no more arguments; remove them, or see `sesame {verb} --help`"
        )
    return message


def _display_name(parameter: Any) -> str:
    """An option as it is typed, or the placeholder of an argument, e.g. RECIPE."""
    return str(parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar)


def _commands() -> Mapping[str, Any]:
    """The commands of the app as click reads them, by name."""
    root: Any = typer.main.get_command(app)
    return root.commands


def _type_of(verb: str, parameter: str) -> Any:
    """The annotation of a parameter of a verb; None if it has none."""
    if verb not in verbs.VERBS:
        return None
    signature = inspect.signature(flatten_options(verbs.VERBS[verb]))
    return signature.parameters[parameter].annotation if parameter in signature.parameters else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (by default that of the process), and return its exit code. Beam's options follow `--`."""
    BEGAN_S.set(perf_counter())
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, beam = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    if now := renames.new_verb(ours[0] if ours else ""):
        return print_error(f"sesame {ours[0]} was renamed to sesame {now} in 0.2", 2)
    if beam and ours[:1] not in (["corpus"], ["run"]):
        expected = "options of Beam after `--` for corpus and run only"
        return print_error(
            f"invalid arguments: got `--` with {ours[0] if ours else 'no verb'}, expected {expected}; remove them", 2
        )
    if is_plain():
        os.environ["TERM"] = "dumb"  # for rich, typer and child processes: text without colors
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    if empty := _empty_folder(ours):
        return print_error(
            f"invalid {empty}: got an empty value, expected a directory; use . for the current directory", 2
        )
    try:
        environment.load_and_delete()
        environment.use_own_caches()
        root = typer.main.get_command(app)
        if COMPLETE in os.environ:
            root(prog_name="sesame")
        with root.make_context("sesame", [*ours] or ["--help"], obj=beam) as context:
            TYPED.set(tuple(given))
            with signals_raise():
                return int(root.invoke(context) or 0)
    except typer.Exit as asked_for_help:
        return asked_for_help.exit_code
    except TyperException as error:
        return print_error(_usage(error, ours), 2)
    except SesameError as error:
        return print_error(str(error), error.exit_code)
    except KeyboardInterrupt as error:
        return print_error(str(error) or "interrupted", 130)
    except BrokenPipeError:  # the reader of stdout has closed the pipe; rich ends in the same way
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ModuleNotFoundError as error:
        return print_error(explain_missing_module(error), ResourceError.exit_code)
    except Exception as error:
        message, exit_code = system_errors.describe(error)
        if not message:
            raise
        return print_error(message, exit_code)
