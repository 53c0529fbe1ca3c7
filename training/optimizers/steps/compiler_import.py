"""Optimizers that do not import torch's compiler.

torch 2.13 imports `torch._dynamo` when an optimizer is created, to exclude four methods from compilation. The import
takes 1 to 3 s in each process. Sesame never compiles these methods.
"""

import inspect

import torch


def skip_compiler_import() -> None:
    """Call the four methods of `torch.optim.Optimizer` directly, so that they do not import the compiler.

    torch stores the excluded function in the attribute `__dynamo_disable` when it first calls a method
    (torch/_compile.py). Here the attribute is the function itself.
    """
    for method in (
        torch.optim.Optimizer.add_param_group,
        torch.optim.Optimizer.load_state_dict,
        torch.optim.Optimizer.state_dict,
        torch.optim.Optimizer.zero_grad,
    ):
        function = inspect.unwrap(method)
        setattr(function, "__dynamo_disable", function)  # a name with two underscores, which mypy would reject
