"""A corpus becomes a trained net, and a trained net becomes scores. The only DeepSpeed.

Read run.py (all that a worker must know) and loop.py (pretraining), then data.py, model.py and engines/. specs/,
losses/, optim/ and tasks/ are what a recipe says, and are imported without torch; trunks/ are the nets, losses/heads/
their heads, formats/ files of weights, evaluation/ fine-tuning and probes, generation/ what nets write. checkpoint.py
and meter.py serve the loop.

It imports preprocessing, and neither pipeline nor orchestration. pyproject.toml lists the packages that it may import.
"""
