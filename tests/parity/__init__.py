"""`make parity`: compare the training losses of every parallel layout with those of one process. `--bare` does it on
DeepSpeed alone.

    python -m tests.parity [--out work/parity] [--minutes 10] [--bare] [--save]

Read the modules in this order: cells.py (the layouts), nets.py (the models, and what `sesame check` says about them),
plain.py (the reference), group.py (groups of workers that train many cells each), table.py (the report). bare.py trains
the same models through `deepspeed.initialize`, as the documentation of DeepSpeed describes it.
"""
