"""What is written for people: recipes in words, the family's table, data cards, model cards, ablations.

Read describe.py first, then diff.py and family.py; model_card/ has the page of a run, data_card/ that of a corpus.
"""

from orchestration.reports.describe import brief, losses
from orchestration.reports.diff import abstract
from orchestration.reports.family import Node, net, row, training_flops

__all__ = ["Node", "abstract", "brief", "losses", "net", "row", "training_flops"]
