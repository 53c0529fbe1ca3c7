"""Readers: files of any format -> records, one for each document, or for bytes that cannot become one.

Read record.py and files.py first, then plain.py, then splits.py, which cuts large inputs into even work.
"""

from pipeline.readers.record import EXPECTED, Record
from pipeline.readers.splits import Split, plan_splits, records, sniff

__all__ = ["EXPECTED", "Record", "Split", "plan_splits", "records", "sniff"]
