"""Which names and values are credentials, as far as their letters tell: files of recipes and records have none.

A value that is `${NAME}` is no credential: it says where one is taken from.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

NAMED: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SECRET: Final = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PWD|PASSPHRASE|PASS|\bPAT|_PAT|KEY|CREDENTIAL|AUTH|COOKIE)S?(_|\d|$)"
    r"|CONNECTION_?STRING",
    re.IGNORECASE,
)
PLACE: Final = re.compile(r"_(PATH|FILE|DIR|ID|URL)$", re.IGNORECASE)  # of a credential, not the credential
LOGIN: Final = re.compile(rf"//(?!{NAMED.pattern}(:{NAMED.pattern})?@)[^/@\s]+@")  # http://user:password@host
PAIR: Final = re.compile(  # NAME=VALUE, "NAME": "VALUE"
    r"""([\w.-]+)["']?\s*[=:]\s*(?=["']?((?:\$\{\w+\}|[^\s"',;&}])+))"""
)
HIDDEN: Final = "***"


def is_credential(name: str) -> bool:
    """Whether a variable or an option of this name holds a credential, as far as a name tells.

    >>> [name for name in ("HF_TOKEN", "aws_secret_access_key", "MYSQL_PWD", "NCCL_DEBUG") if is_credential(name)]
    ['HF_TOKEN', 'aws_secret_access_key', 'MYSQL_PWD']
    >>> is_credential("fs.s3a.secret.key"), is_credential("TOKENIZERS_PARALLELISM"), is_credential("TOKEN_FILE")
    (True, False, False)
    """
    plain = re.sub(r"[.-]", "_", name)
    return bool(SECRET.search(plain)) and not PLACE.search(plain)


def has_credential(value: Any) -> bool:
    """Whether a value has a credential in it: a login in an address, NAME=VALUE, or a key of a mapping, at any depth.

    >>> has_credential("http://me:pa$word@proxy"), has_credential("https://ghp_x@host/"), has_credential("AccountKey=x")
    (True, True, True)
    >>> has_credential({"env": {"AWS_SECRET_ACCESS_KEY": "x"}}), has_credential(["http://host/a@b", "a=b"])
    (True, False)
    >>> has_credential("http://${LOGIN}@proxy"), has_credential("--token=${HF_TOKEN}")
    (False, False)
    """
    if isinstance(value, Mapping):
        return any(_is_given(str(name), inner) or has_credential(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return any(has_credential(inner) for inner in value)
    if not isinstance(value, str):
        return False
    return bool(LOGIN.search(value)) or _has_pair(value)


def _has_pair(text: str) -> bool:
    """Whether a text has the name of a credential with its value."""
    return any(_is_given(name, value) for name, value in PAIR.findall(text))


def _is_given(name: str, value: Any) -> bool:
    """Whether a credential of this name is given in plain text; true and false are none."""
    return is_credential(name) and not isinstance(value, bool) and not NAMED.fullmatch(str(value))


def without_credentials(words: Sequence[str]) -> list[str]:
    """A command line as it is kept: hidden are logins in addresses and, behind `--`, what has a credential's name.

    >>> without_credentials(["corpus", "--data", "https://me:pw@host/a", "--", "--s3_session_token", "x", "--s3_key=y"])
    ['corpus', '--data', 'https://***@host/a', '--', '--s3_session_token', '***', '--s3_key=***']
    """
    at = words.index("--") if "--" in words else len(words)
    ours, theirs = words[:at], words[at:]
    hidden = [_hidden(word, before) for before, word in zip(["", *theirs], theirs, strict=False)]
    return [LOGIN.sub(f"//{HIDDEN}@", word) for word in (*ours, *hidden)]


def _hidden(word: str, before: str) -> str:
    """A word of a command line, with `before` in front of it, without what NAME=VALUE or `--NAME VALUE` tell."""
    name, equals, value = word.partition("=")
    if is_credential(before) and before.startswith("--") and "=" not in before:
        return HIDDEN
    if equals and name.startswith("--"):
        return f"{name}={HIDDEN}" if is_credential(name) or _has_pair(value) else word
    return HIDDEN if _has_pair(word) else word
