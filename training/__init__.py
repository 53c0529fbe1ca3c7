"""Training and evaluation: from a corpus to a trained model and its scores. Only this package imports DeepSpeed.

Read run.py (the description of a run for its workers) and loop.py (pretraining), then data.py, model.py and engines/.
specs/, losses/, optimizers/ and evaluation/tasks/ have the keys of a recipe and are imported without torch.
architectures/ has the models, losses/heads/ their heads, formats/ weight files, finetuning/ heads of downstream tasks
and their training, evaluation/ everything that scores or samples a model. step_work.py, tally.py, saver.py and meter.py
are parts of the loop.

This package imports preprocessing, but not pipeline or orchestration. pyproject.toml lists the allowed imports.
"""
