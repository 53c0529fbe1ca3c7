"""Training does not import torch's compiler, which takes 2 to 3 s in each process."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
from training.optimizers import {name}
weight = torch.nn.Parameter(torch.ones(4, 4))
optimizer = {name}(learning_rate=1e-3).build([{{"params": [weight]}}])
optimizer.zero_grad()
weight.sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.add_param_group({{"params": [torch.nn.Parameter(torch.ones(2, 2))]}})
assert (weight < 1).all()
print("torch._dynamo" in sys.modules)
"""
ENGINE = """
import os, sys
from training.engines import connect, load_deepspeed
from training.specs import EngineSettings
load_deepspeed()
from deepspeed.runtime.zero.utils import is_zero_supported_optimizer
from deepspeed.runtime import compiler
assert compiler.compile.__module__ == "deepspeed.runtime.compiler"  # restored
from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam
print("torch._dynamo" in sys.modules, load_deepspeed().ops.__compatible_ops__["deepspeed_shm_comm"])
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ["AdamW", "Lamb", "Lion", "Adafactor", "Muon"])
def test_an_optimizer_does_not_import_the_compiler(name: str) -> None:
    assert run(PROGRAM.format(name=name)) == "False"


def test_deepspeed_does_not_import_the_compiler_and_loads_no_operator() -> None:
    assert run(ENGINE) == "False False"
