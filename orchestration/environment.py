"""The environment variables of a cluster file: `${NAME}` is replaced by a variable of the user who starts the run.

A cluster file contains secrets as `${NAME}` only. They are replaced when a run is started or submitted. The values stay
in the memory of this process and of the workers, which receive them in a call. They are never part of Ray's
runtime_env, because Ray writes that to its logs, to its job table and to the arguments of its processes.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from preprocessing.credentials import NAMED, has_credential
from preprocessing.errors import BadInput, ResourceError
from preprocessing.folders import is_writable, user_cache
from preprocessing.spec import InvalidValue

FILE: Final = "SESAME_ENVIRONMENT_FILE"  # environment variable of a submitted job: path of the file with its values
RESERVED: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR", "OMP_NUM_THREADS"}
    | {"CUDA_VISIBLE_DEVICES", "PATH", "HOME"}
)
CACHES: Final = {  # environment variable -> directory in our cache, default directory in the home of the user
    "MPLCONFIGDIR": ("matplotlib", ".config"),
    "TRITON_CACHE_DIR": ("triton", ".triton"),
}
READ_EARLY: Final = ("LD_", "PYTHON", "MALLOC_", "RAY_", "SESAME_")  # Python and Ray read them before we can set them


def check(env: Mapping[str, str]) -> None:
    """ValueError if a cluster file must not contain a variable; the message never contains its value."""
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InvalidValue("env", f"the name {name!r}", "letters, digits and _; rename the variable")
        if name in RESERVED:
            raise InvalidValue(f"env.{name}", "a variable that Sesame or Ray sets", "another name; remove it")
        if name.startswith(READ_EARLY):
            raise InvalidValue(
                f"env.{name}",
                "a variable that processes read before Sesame can set it",
                "another name; set it where Ray is started",
            )
        if "${" in NAMED.sub("", value) or "\0" in value:
            raise InvalidValue(
                f"env.{name}", "an invalid reference", "${NAME}, a name of letters, digits and _; correct it"
            )
        if has_credential({name: value}):
            raise InvalidValue(
                f"env.{name}",
                "a credential in plain text",
                "${NAME}; export the value where you start or submit the run",
            )


def names(env: Mapping[str, str]) -> list[str]:
    """The names of the variables that the values refer to.

    >>> names({"HF_TOKEN": "${MY_TOKEN}", "NCCL_DEBUG": "WARN", "HF_HOME": "${SCRATCH}/hf"})
    ['MY_TOKEN', 'SCRATCH']
    """
    return list(dict.fromkeys(name for value in env.values() for name in NAMED.findall(value)))


def resolve(env: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """The variables with each `${NAME}` replaced by its value in `source`. BadInput if one is missing.

    >>> resolve({"HF_HOME": "${SCRATCH}/hf"}, {"SCRATCH": "/scratch"})
    {'HF_HOME': '/scratch/hf'}
    """
    if missing := [name for name in names(env) if name not in source]:
        keys = ", ".join(key for key, value in env.items() if {*NAMED.findall(value)} & {*missing})
        raise BadInput(
            f"cluster: env.{keys} needs ${', $'.join(missing)}, which is not in the environment; export it, or change "
            "the cluster file"
        )
    return {name: NAMED.sub(lambda match: source[match[1]], value) for name, value in env.items()}


def use_own_caches() -> None:
    """Move the caches of libraries to our cache directory if their default directory is not writable.

    Otherwise these libraries fail, or warn in each process.
    """
    home = Path(os.path.expanduser("~"))
    for name, (folder, place) in CACHES.items():
        if not is_writable(home / place):
            os.environ.setdefault(name, str(user_cache() / folder))


_applied = ContextVar[tuple[Mapping[str, str], dict[str, str]] | None]("_applied", default=None)


@contextmanager
def apply(env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Set the variables in this process inside the block, and yield them with their values.

    A nested block with the same `env` uses the same values. BadInput if a variable is missing.
    """
    outer = _applied.get()
    if outer and outer[0] == env:
        yield outer[1]
        return
    values = resolve(env, os.environ)
    before = {name: os.environ.get(name) for name in values}
    token = _applied.set((dict(env), values))
    os.environ |= values
    try:
        yield values
    finally:
        _applied.reset(token)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


# Transfer to a submitted job


def save(env: Mapping[str, str], file: Path) -> bool:
    """Write the variables that `env` refers to into `file`, which only this user can read. False if there are none."""
    values = {name: os.environ[name] for name in names(env) if name in os.environ}
    resolve(env, values)
    if not values:
        return False
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
    ) as writer:
        json.dump(values, writer)
    return True


def load_and_delete() -> None:
    """Set the variables that `save` wrote for this job, and delete the file. Does nothing without such a file.

    ResourceError if the file cannot be read, or if other users have access to it.
    """
    if not (path := os.environ.pop(FILE, "")):
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise ResourceError(
            f"{path}: cannot read the environment that was submitted with this job ({error.strerror}); use an "
            "--output-dir that the sender and the cluster share, and the same user on both"
        ) from None
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise ResourceError(f"{path}: other users have access to this file, so it is ignored; submit the job again")
        os.unlink(path)
        text = file.read()
    try:
        os.environ |= json.loads(text)
    except (ValueError, TypeError):  # not JSON, or not text
        raise ResourceError(
            f"{path}: the environment that was submitted with this job is damaged; submit the job again"
        ) from None
