"""Memory for a model on the meta device."""

import subprocess
import sys

import torch
from torch import nn

from training.model import allocate


def test_tensors_have_the_shapes_and_dtypes_of_the_model() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False).to(torch.bfloat16))
    model[0].bias.requires_grad_(False)
    before = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
    trained = {name: weight.requires_grad for name, weight in model.named_parameters()}
    allocate(model, torch.device("cpu"))
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()} == before
    assert {name: weight.requires_grad for name, weight in model.named_parameters()} == trained
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"cpu"}


def test_a_model_is_built_without_sympy() -> None:
    """`nn.Module.to_empty` imports it, which takes 0.7 s in each process of an evaluation."""
    code = """
import sys
from orchestration.config import load
from training.finetuning import TaskModel
from training.model import Model
recipe = load("bert_base", scale="tiny")
Model(recipe.model, recipe.losses, 100, seed=0)
TaskModel(recipe.model, (), 100, seed=0)
sys.exit("sympy" in sys.modules or "sklearn" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
