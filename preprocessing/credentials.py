"""Detect credentials by their names and by the form of their values, so that recipes and records contain none.

The value `${NAME}` is not a credential: it only names the environment variable that has one.
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
PLACE: Final = re.compile(
    r"_(PATH|FILE|DIR|ID|URL)$", re.IGNORECASE
)  # the location of a credential, not the credential
LOGIN: Final = re.compile(rf"//(?!{NAMED.pattern}(:{NAMED.pattern})?@)[^/@\s]+@")  # http://user:password@host
PAIR: Final = re.compile(  # NAME=VALUE, "NAME": "VALUE"
    r"""([\w.-]+)["']?\s*[=:]\s*(?=["']?((?:\$\{\w+\}|[^\s"',;&}])+))"""
)
HIDDEN: Final = "***"


def is_credential(name: str) -> bool:
    """Whether the name of a variable or an option suggests that its value is a credential.

    >>> [name for name in ("HF_TOKEN", "aws_secret_access_key", "MYSQL_PWD", "NCCL_DEBUG") if is_credential(name)]
    ['HF_TOKEN', 'aws_secret_access_key', 'MYSQL_PWD']
    >>> is_credential("fs.s3a.secret.key"), is_credential("TOKENIZERS_PARALLELISM"), is_credential("TOKEN_FILE")
    (True, False, False)
    """
    plain = re.sub(r"[.-]", "_", name)
    return bool(SECRET.search(plain)) and not PLACE.search(plain)


def has_credential(value: Any) -> bool:
    """Whether a value contains a credential, at any depth: a login in a URL, NAME=VALUE, or a key of a mapping.

    >>> has_credential("http://me:pa$word@proxy"), has_credential("https://ghp_x@host/"), has_credential("AccountKey=x")
    (True, True, True)
    >>> has_credential({"env": {"AWS_SECRET_ACCESS_KEY": "x"}}), has_credential(["http://host/a@b", "a=b"])
    (True, False)
    >>> has_credential("http://${LOGIN}@proxy"), has_credential("--token=${HF_TOKEN}")
    (False, False)
    """
    if isinstance(value, Mapping):
        return any(_is_plain(str(name), inner) or has_credential(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return any(has_credential(inner) for inner in value)
    if not isinstance(value, str):
        return False
    return bool(LOGIN.search(value)) or _has_pair(value)


def _has_pair(text: str) -> bool:
    """Whether a text contains the name of a credential with its value in plain text."""
    return any(_is_plain(name, value) for name, value in PAIR.findall(text))


def _is_plain(name: str, value: Any) -> bool:
    """Whether this name and value are a credential in plain text; true and false are not credentials."""
    return is_credential(name) and not isinstance(value, bool) and not NAMED.fullmatch(str(value))


def without_credentials(words: Sequence[str]) -> list[str]:
    """A command line for records: hides logins in URLs and, after `--`, values whose names suggest a credential.

    >>> without_credentials(["corpus", "--data", "https://me:pw@host/a", "--", "--s3_session_token", "x", "--s3_key=y"])
    ['corpus', '--data', 'https://***@host/a', '--', '--s3_session_token', '***', '--s3_key=***']
    """
    at = words.index("--") if "--" in words else len(words)
    sesame_words, engine_words = words[:at], words[at:]
    redacted = [_redact(word, before) for before, word in zip(["", *engine_words], engine_words, strict=False)]
    return [LOGIN.sub(f"//{HIDDEN}@", word) for word in (*sesame_words, *redacted)]


def _redact(word: str, before: str) -> str:
    """A word of a command line, with the credential in NAME=VALUE or `--NAME VALUE` hidden; `before` precedes it."""
    name, equals, value = word.partition("=")
    if is_credential(before) and before.startswith("--") and "=" not in before:
        return HIDDEN
    if equals and name.startswith("--"):
        return f"{name}={HIDDEN}" if is_credential(name) or _has_pair(value) else word
    return HIDDEN if _has_pair(word) else word
