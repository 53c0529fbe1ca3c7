"""Messages for unknown commands and options: they name an option of the same command, or the key of a file."""

import re
from collections.abc import Mapping
from typing import Any

from orchestration.cli import verbs


def explain_command(word: str) -> str:
    """The message for a command that does not exist.

    >>> explain_command("finetune")
    'invalid command: got finetune, expected a command that `sesame --help` lists; did you mean eval?'
    """
    from orchestration.config import find_nearest, glossary, invalid

    nearest = glossary.command_of(word) or find_nearest(word, verbs.VERBS)
    remedy = f"did you mean {nearest}?" if nearest else "see `sesame --help`"
    return invalid("command", word, "a command that `sesame --help` lists", remedy)


def explain_option(given: str, verb: str, commands: Mapping[str, Any]) -> str:
    """The message for an option that a command does not have; `verb` is "" if the line has no command.

    `commands` are all commands, as click reads them.
    """
    from orchestration.config import find_nearest, glossary, invalid

    given = given.partition("=")[0]
    if not verb:
        return invalid("option", given, "a command first", "see `sesame --help`")
    if option := _same_option(given, verb, commands):
        note = glossary.note_of(given, "")
        return invalid("option", given, option + (f" ({note})" if note else ""), "rename it")
    if nearest := find_nearest(given, _options(commands[verb]), cutoff=0.85):
        return invalid("option", given, f"an option of `sesame {verb}`", f"did you mean {nearest}?")
    # generate has prompts after the run, and its keys are values of --set
    has_keys = any(one.name == "overrides" and one.param_type_name == "argument" for one in commands[verb].params)
    if has_keys and (found := _key(given, verb)):
        return invalid("option", given, *found)
    expected = f"an option of `sesame {verb}`"
    having = {other: option for other in commands if (option := _same_option(given, other, commands))}
    if having:
        first, *more = having
        such = f"{first} and other commands have" if more else f"only {first} has"
        return invalid("option", given, expected, f"leave it out, because {such} {having[first]}")
    nearest = find_nearest(given, _options(commands[verb]), cutoff=0.7)
    return invalid("option", given, expected, f"did you mean {nearest}?" if nearest else f"see `sesame {verb} --help`")


def _options(command: Any) -> list[str]:
    """The options of a command with two dashes."""
    options = (name for one in command.params if one.param_type_name == "option" for name in one.opts)
    return [name for name in options if name.startswith("--")]


def _same_option(given: str, verb: str, commands: Mapping[str, Any]) -> str:
    """The option of a command with the name or the meaning of `given`; "" if there is none."""
    from orchestration.config import glossary

    known, files = _options(commands[verb]), ("task", "") if verb == "eval" else ("",)
    return next((option for option in glossary.option_names(given, *files) if option in known), "")


def _key(given: str, verb: str) -> tuple[str, str] | None:
    """The key that an unknown option means, as `expected` and `remedy` of a message; None if there is none."""
    from orchestration.config import find_override, find_parts, glossary

    name = glossary.plain(given).rpartition(".")[2]
    if verb == "eval":
        of_grid = {key.name for part in find_parts("task.grids") for key in part.keys}
        key = glossary.key_of(given, "task") or (f"grids.NAME.{name}" if name in of_grid else "")
        if key:
            return f"{key} of a task file, because it is a key", "write it into your own task file"
    ours = find_override(name)
    is_ours = f".{re.sub(r'[.][0-9]+', '', ours)}".endswith(f".{glossary.plain(given)}")
    key = glossary.key_of(given) or (ours if is_ours else "")
    if key:
        note = glossary.note_of(given, key)
        shown = f"{key}={glossary.value_of(given) or 'VALUE'}" + (f" ({note})" if note else "")
        return f"{shown}, because it is a key", "write it after the recipe"
    instead = glossary.find_absent(name)
    return instead if instead[0] and "option" not in instead[0] else None
