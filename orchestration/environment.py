"""The environment of a cluster file: variables of the workers, with ${NAME} taken from whoever starts the run.

A file has names and `${NAME}` alone; values are looked up when a run is started or sent, and live in memory: of this
process, and of the workers, which are handed them in a call. They are in no runtime_env of Ray, whose values stand in
its logs, in its job table and in the arguments of its processes.
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

FILE: Final = "SESAME_ENVIRONMENT_FILE"  # in the environment of a submitted job: where its values lie until it starts
OURS: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR", "OMP_NUM_THREADS"}
    | {"CUDA_VISIBLE_DEVICES", "PATH", "HOME"}
)
CACHES: Final = {  # by the variable that names another one: ours, and theirs below the home of a user
    "MPLCONFIGDIR": ("matplotlib", ".config"),
    "TRITON_CACHE_DIR": ("triton", ".triton"),
}
TOO_LATE: Final = ("LD_", "PYTHON", "MALLOC_", "RAY_", "SESAME_")  # read when a process starts, or when Ray does


def check(env: Mapping[str, str]) -> None:
    """ValueError, without the value, for what a cluster file may not have."""
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"env has the name {name!r}, allowed are letters, digits and _")
        if name in OURS:
            raise ValueError(f"env.{name} is given, allowed is no such name: Sesame and Ray set it")
        if name.startswith(TOO_LATE):
            raise ValueError(f"env.{name} is given, allowed is no such name: set it where Ray's processes are started")
        if "${" in NAMED.sub("", value) or "\0" in value:
            raise ValueError(f"env.{name} is not what it can be, allowed is ${{NAME}}, a letter first and no blank")
        if has_credential({name: value}):
            raise ValueError(
                f"env.{name} is a credential in plain text, allowed is ${{NAME}}: it is taken from the environment of "
                "whoever starts or sends the run"
            )


def names(env: Mapping[str, str]) -> list[str]:
    """The variables that values are taken from.

    >>> names({"HF_TOKEN": "${MY_TOKEN}", "NCCL_DEBUG": "WARN", "HF_HOME": "${SCRATCH}/hf"})
    ['MY_TOKEN', 'SCRATCH']
    """
    return list(dict.fromkeys(name for value in env.values() for name in NAMED.findall(value)))


def resolve(env: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables with their values; BadInput where one of `given` is lacking.

    >>> resolve({"HF_HOME": "${SCRATCH}/hf"}, {"SCRATCH": "/scratch"})
    {'HF_HOME': '/scratch/hf'}
    """
    if lacking := [name for name in names(env) if name not in given]:
        wants = ", ".join(key for key, value in env.items() if {*NAMED.findall(value)} & {*lacking})
        raise BadInput(
            f"cluster: env.{wants} wants ${', $'.join(lacking)}, which is not in the environment; export it, or change "
            "the cluster file"
        )
    return {name: NAMED.sub(lambda found: given[found[1]], value) for name, value in env.items()}


def use_own_caches() -> None:
    """Have libraries keep what they can make anew in this user's cache folder, where they could not in his home: they
    warn in each process, or fail."""
    home = Path(os.path.expanduser("~"))
    for name, (folder, place) in CACHES.items():
        if not is_writable(home / place):
            os.environ.setdefault(name, str(user_cache() / folder))


_held = ContextVar[tuple[Mapping[str, str], dict[str, str]] | None]("_held", default=None)


@contextmanager
def applied(env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """This process has the variables inside the block, which gets them; looked up once where blocks are nested.

    BadInput where one is lacking.
    """
    now = _held.get()
    if now and now[0] == env:
        yield now[1]
        return
    values = resolve(env, os.environ)
    before = {name: os.environ.get(name) for name in values}
    session = _held.set((dict(env), values))
    os.environ |= values
    try:
        yield values
    finally:
        _held.reset(session)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


# On the way to a submitted job


def save(env: Mapping[str, str], file: Path) -> bool:
    """Write what `env` names into `file`, for us alone to read, until the job takes it; False where that is nothing."""
    values = {name: os.environ[name] for name in names(env) if name in os.environ}
    resolve(env, values)
    if not values:
        return False
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8"
    ) as written:
        json.dump(values, written)
    return True


def load_and_delete() -> None:
    """Take over what was left for this job, and remove the file; nothing where nothing was.

    ResourceError where the file cannot be read, or is not ours alone.
    """
    if not (given := os.environ.pop(FILE, "")):
        return
    try:
        opened = os.open(given, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise ResourceError(
            f"{given}: the environment that was sent with this job cannot be read ({error.strerror}); the folder of "
            "--output-dir must be one for the sender and the cluster, and their user the same"
        ) from None
    with open(opened, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise ResourceError(f"{given}: is not ours alone, so that nothing of it is taken; send the job again")
        os.unlink(given)
        text = file.read()
    try:
        os.environ |= json.loads(text)
    except (ValueError, TypeError):  # no JSON, or no words
        raise ResourceError(
            f"{given}: the environment that was sent with this job is torn; send the job again"
        ) from None
