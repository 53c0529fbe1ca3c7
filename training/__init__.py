"""A corpus -> a trained model -> scores. Only this package imports DeepSpeed.

Read run.py (the description of a run for its workers) and loop.py (pretraining), then data.py, model.py and engines/.
specs/, losses/, optimizers/ and tasks/ have the keys of a recipe and are imported without torch. architectures/ has the
models, losses/heads/ their heads, formats/ weight files, evaluation/ and finetuning/ downstream tasks, likelihood/ and
generation/ the evaluation without training. checkpoint.py and meter.py serve the loop.

It imports preprocessing, and neither pipeline nor orchestration. pyproject.toml lists the packages that it may import.
"""
