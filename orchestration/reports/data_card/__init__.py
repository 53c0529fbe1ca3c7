"""The data card of a corpus: facts.py counts, examples.py decodes sequences, page.py writes Markdown and HTML."""

from orchestration.reports.data_card.card import NAMES, pictures, save
from orchestration.reports.data_card.examples import attention_mask
from orchestration.reports.data_card.facts import facts_of

__all__ = ["NAMES", "attention_mask", "facts_of", "pictures", "save"]
