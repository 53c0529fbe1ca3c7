"""Decisions of datatrove's FineWebQualityFilter about documents, one reason per line; "" for a document that is kept.

    python benchmarks/peers/datatrove_filters.py documents.jsonl > decisions.txt

It needs `pip install datatrove spacy`. On 2026-11-27, datatrove 0.10.1 and `fineweb_quality` of Sesame decided alike
about 7,754 documents of Simple Wikipedia, Wikipedia, WikiText-2, Shakespeare and package documentation, and about 3,000
documents near the thresholds (tests/preprocessing/text/test_fineweb.py). With the default of 0.01 for duplicate lines,
659 of the 7,754 decisions differ.
"""

import json
import sys
from pathlib import Path

from datatrove.data import Document  # type: ignore[import-not-found]
from datatrove.pipeline.filters.fineweb_quality_filter import FineWebQualityFilter  # type: ignore[import-not-found]


def main(file: Path) -> None:
    """Print the reason for each document of a JSON Lines file."""
    quality = FineWebQualityFilter(char_duplicates_ratio=0.1)  # the paper; datatrove has 0.01
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            found = quality.filter(Document(text=json.loads(line)["text"], id=str(number)))
            print("" if found is True else found[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
