"""The typer app, its verbs in the order of `--help`, and `main`, which turns errors into one line and an exit code."""

import logging
import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import Annotated

import typer
from typer.exceptions import TyperException

from orchestration import environment, system_errors
from orchestration.cli import verbs
from orchestration.cli.groups import flatten_options
from orchestration.cli.shared import TYPED
from orchestration.signals import signals_raise
from orchestration.terminal import BEGAN_S, is_plain, print_error
from orchestration.version import sesame_version
from preprocessing import renames
from preprocessing.errors import ResourceError, SesameError, missing_module

COMPLETE = "_SESAME_COMPLETE"  # environment variable that a shell sets to ask for completions
_PYDANTIC = {  # messages of typer about values of options, and ours
    r"Input should be greater than or equal to (\S+)": r"allowed is a number from \1 up",
    r"Input should be less than or equal to (\S+)": r"allowed is a number up to \1",
    "Input should be a valid integer.*": "allowed is a whole number",
    "Input should be a valid number.*": "allowed is a number",
    "Value error, ": "",
}
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
    app.command(_name)(flatten_options(_verb))


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
    """A usage error in one line, with the new name of an option of 0.1, or the key that was written as an option."""
    from orchestration.config import key_of

    option = getattr(error, "option_name", "") or ""
    verb = words[0] if words else ""
    if now := renames.new_option(verb, option):
        return f"{option} was renamed to {now} in 0.2"
    if key := key_of(option.lstrip("-").replace("-", "_")):
        return f"no such option: {option}; here it is a key: write {key}=VALUE"
    message = error.format_message().replace("\n", " ")
    for pattern, ours in _PYDANTIC.items():
        message = re.sub(pattern, ours, message)
    return message


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (by default that of the process), and return its exit code. Beam's options follow `--`."""
    BEGAN_S.set(perf_counter())
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, beam = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    if now := renames.new_verb(ours[0] if ours else ""):
        return print_error(f"sesame {ours[0]} was renamed to sesame {now} in 0.2", 2)
    if beam and ours[:1] not in (["corpus"], ["run"]):
        return print_error("options after `--` are for Beam: only corpus and run take them", 2)
    if is_plain():
        os.environ["TERM"] = "dumb"  # for rich, typer and child processes: text without colors
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    if empty := _empty_folder(ours):
        return print_error(f"{empty} is empty, as a variable that is not set; give a directory: . is this one", 2)
    try:
        environment.load_and_delete()
        environment.use_own_caches()
        root = typer.main.get_command(app)
        if COMPLETE in os.environ:
            root(prog_name="sesame")
        with root.make_context("sesame", ours or ["--help"], obj=beam) as context:
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
        return print_error(missing_module(error), ResourceError.exit_code)
    except Exception as error:
        message, exit_code = system_errors.describe(error)
        if not message:
            raise
        return print_error(message, exit_code)
