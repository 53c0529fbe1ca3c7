"""What is written for people: recipes in words, the family's table, data cards, model cards, ablations.

Read describe.py first, then diff.py, family.py and task_list.py; model_card/ has the page of a run, data_card/ that of
a corpus.
"""

from orchestration.reports.describe import brief, losses
from orchestration.reports.diff import abstract
from orchestration.reports.family import Node, net, row, training_flops
from orchestration.reports.task_list import faults, tasks_as_values, tasks_at_hand

__all__ = [
    "Node",
    "abstract",
    "brief",
    "faults",
    "losses",
    "net",
    "row",
    "tasks_as_values",
    "tasks_at_hand",
    "training_flops",
]
