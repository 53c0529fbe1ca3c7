"""Files beside data that are no data: those of Hugging Face `datasets` and of a repository on a hub.

`datasets` writes dataset_info.json, state.json and dataset_dict.json beside its tables, empty lock files, and a file
cache-FINGERPRINT.arrow for each result of `map`, `filter` or `shuffle`. A cache has the rows of the table again, or
only their indices. So these files are neither read nor reported.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Final

_CACHE: Final = re.compile(r"cache-[0-9a-f]{16}(_\d{5}_of_\d{5})?\.arrow")
_OF_TABLES: Final = ("dataset_info.json", "state.json")
_OF_SPLITS: Final = "dataset_dict.json"
_LOCK: Final = ".lock"
_TABLE: Final = ".arrow"
# names of hidden files and directories of a repository on a hub, or of its copy on this machine
HIDDEN_COMPANIONS: Final = frozenset((".cache", ".gitattributes", ".huggingface"))
_ABOUT: Final = re.compile(  # as in repositories of datasets on a hub
    r"licen[cs]e(\.(md|txt))?|citation\.(cff|bib)|dataset_infos\.json", re.IGNORECASE
)
_CARD: Final = "readme.md"
_METADATA: Final = b"---"  # the first line of a dataset card, whose metadata is YAML


def find_companions(sizes: Mapping[str, int]) -> set[str]:
    """The names among these files, mapped to their sizes in bytes, that `datasets` wrote beside its tables.

    >>> sizes = {"dataset_info.json": 9, "state.json": 9, "data-00000-of-00001.arrow": 99}
    >>> sorted(find_companions(sizes | {"cache-1a18d719add2d3b2.arrow": 99, "a/state.json": 9}))
    ['cache-1a18d719add2d3b2.arrow', 'dataset_info.json', 'state.json']
    """
    found = {name for name in sizes if _CACHE.fullmatch(posixpath.basename(name))}
    tables = {posixpath.dirname(name) for name in sizes if name.endswith(_TABLE)}
    above = {posixpath.dirname(folder) for folder in tables if folder}
    for name, size in sizes.items():
        folder, base = posixpath.split(name)
        is_info = (base in _OF_TABLES and folder in tables) or (base == _OF_SPLITS and folder in above)
        if is_info or (not size and base.endswith(_LOCK)):
            found.add(name)
    return found


def is_about_data(label: str, start: bytes) -> bool:
    """Whether a file of a dataset repository describes its data: the license, or a dataset card.

    `start` is the beginning of the file. A README.md without the metadata of a dataset card may be text.

    >>> is_about_data("en/README.md", b"---\\nlicense: mit\\n---"), is_about_data("README.md", b"Text")
    (True, False)
    """
    name = posixpath.basename(label)
    return _ABOUT.fullmatch(name) is not None or (name.lower() == _CARD and start.startswith(_METADATA))
