"""`make parity`: compare the training losses of every parallel layout with those of one process. With `--bare`, compare
those of DeepSpeed alone.

    python -m tests.parity [--out work/parity] [--minutes 10] [--bare] [--save]

Read the modules in this order: cells.py (the layouts), nets.py (the models, and the messages of `sesame check`),
plain.py (the reference), group.py (groups of workers), table.py (the report).

The module bare.py trains the same models through `deepspeed.initialize`, as the documentation of DeepSpeed describes
it.
"""
