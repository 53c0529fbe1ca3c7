"""Fields that stay with a document: the key `keep` of a source names them, and its reader returns their values as text.

A value is None if the document does not have the field. Values are not cleaned; `clean.mask_pii` masks text only.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from re import sub
from typing import Any, Final

from pipeline.readers.files import open_bytes
from preprocessing.errors import BadInput
from preprocessing.spec import InvalidValue

_MOST_NAMED: Final = 12  # fields that a message lists
_BLOCK: Final = 1 << 20
_OVERLAP: Final = 1 << 10
_HALF: Final = "[\ud800-\udfff]"  # half of a surrogate pair: valid in JSON, not in UTF-8


def require_fields(kind: str, keep: Sequence[str], have: Sequence[str] | None) -> None:
    """Raise InvalidValue if `keep` has a field twice, an empty one, or one that is not in `have`; None: any field."""
    for name in keep:
        if have is not None and name not in have:
            raise InvalidValue(f"{kind}.keep", repr(name), f"fields of {kind}: {', '.join(have)}", name)
        if not name or keep.count(name) > 1:
            raise InvalidValue(f"{kind}.keep", repr(name), "the name of each field once", name)


def require_present(path: str, keep: Iterable[str], have: Sequence[str]) -> None:
    """Raise BadInput if a file lacks a field of `keep`; `have` are its fields."""
    for name in keep:
        if name not in have:
            named = ", ".join(map(repr, have[:_MOST_NAMED])) + ", ..." * (len(have) > _MOST_NAMED)
            raise BadInput(
                f"{path}: missing field {name!r}, expected one of {named or 'none'}; change `keep` of the source"
            )


def overlapping_blocks(path: str, encoding: str = "") -> Iterator[bytes]:
    """All bytes of a file in blocks of 1 MB, each after the end of the previous one, so that no short word is cut."""
    with open_bytes(path, encoding=encoding) as file:
        before = b""
        while block := file.read(_BLOCK):
            yield before + block
            before = block[-_OVERLAP:]


def list_kept_fields(source: Any) -> tuple[str, ...]:
    """The fields that a source keeps, sorted; () if its format has none."""
    return tuple(sorted(getattr(source, "keep", ())))


def to_text(value: Any) -> str | None:
    """A value of a field as text; None for a missing one. Lists and mappings become JSON.

    >>> to_text("a"), to_text(3), to_text(True), to_text(None), to_text({"b": [1, None, b"c"]})
    ('a', '3', 'true', None, '{"b":[1,null,"c"]}')
    """
    if value is None:
        return None
    if isinstance(value, bytes | date):
        value = _name(value)
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_name)
    return sub(_HALF, "\ufffd", value)


def _name(value: object) -> str:
    """A value that JSON does not have as a string, also within a list or mapping."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.isoformat() if isinstance(value, date) else str(value)
