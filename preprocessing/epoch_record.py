"""A record of the numbers of sequences and tokens of past epochs, so that a run that resumes does not plan them again.

The numbers are a pure function of corpus and recipe: without the record, they are computed again.
"""

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from preprocessing.files import from_checked_json, to_checked_json, write_atomic
from preprocessing.sampling import ExampleSpec

log = logging.getLogger(__name__)


class EpochSizes(NamedTuple):
    """The number of sequences of an epoch, and of their tokens of the text."""

    rows: int
    tokens: int | None = None  # None if the sequences were counted without planning them


class EpochRecord:
    """A JSON file with the sizes of epochs by sequence length, group and epoch, of one corpus and sampling.

    A file of another corpus or sampling is replaced. With `writes` False, the file is only read.
    """

    def __init__(self, path: Path, corpus: str, sampling: ExampleSpec, writes: bool = True) -> None:
        """`corpus` is the digest of the manifest."""
        self.path, self._writes = path, writes
        causes = json.dumps([corpus, asdict(sampling)], sort_keys=True)
        self._identity = hashlib.sha256(causes.encode()).hexdigest()
        self._sizes = self._read()

    def get(self, length: int, group: int, epoch: int) -> EpochSizes | None:
        """The sizes of an epoch; None if the record does not have them."""
        return self._sizes.get((length, group, epoch))

    def put(self, length: int, group: int, epoch: int, sizes: EpochSizes) -> None:
        """Add the sizes of an epoch, and write the file if its directory exists."""
        self._sizes[length, group, epoch] = sizes
        if self._writes and self.path.parent.is_dir():
            self._sizes = self._read() | self._sizes  # other processes of the same run write, too
            epochs = [[*key, *sizes] for key, sizes in sorted(self._sizes.items())]
            with suppress(OSError):  # a full disk stops training at the next checkpoint, which says so
                write_atomic(self.path, to_checked_json({"identity": self._identity, "epochs": epochs}))

    def _read(self) -> dict[tuple[int, int, int], EpochSizes]:
        try:
            value: dict[str, Any] = from_checked_json(self.path.read_bytes())
            if value["identity"] != self._identity:
                return {}
            sizes = {
                (length, group, epoch): EpochSizes(*of_epoch) for length, group, epoch, *of_epoch in value["epochs"]
            }
            if not all(isinstance(number, int) for key, of in sizes.items() for number in (*key, of.rows)):
                raise ValueError("not all sizes are integers")
            return sizes
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s: cannot read the sizes of earlier epochs (%s); they are computed again", self.path, error)
            return {}
