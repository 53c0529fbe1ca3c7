"""What files are in, for the readers: preprocessing/encodings.py, which the tables of tasks share."""

from preprocessing.encodings import (
    LOST,
    UTF8,
    Encoding,
    codec,
    is_utf8,
    lines_to_look_at,
    of_lines,
    to_utf8,
    whole_lines,
    wide,
)

__all__ = [
    "LOST",
    "UTF8",
    "Encoding",
    "codec",
    "is_utf8",
    "lines_to_look_at",
    "of_lines",
    "to_utf8",
    "whole_lines",
    "wide",
]
