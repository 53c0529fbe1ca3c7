"""The model card of a run: README.md of an export and of the MLflow model. card.py writes it."""

from orchestration.reports.model_card.card import RESULT, model_card, num_parameters

__all__ = ["RESULT", "model_card", "num_parameters"]
