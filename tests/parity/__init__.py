"""`make parity`: does what is learned depend on the layout? And does it on bare DeepSpeed?

    python -m tests.parity [--out work/parity] [--minutes 10] [--bare] [--save]

Read cells.py first (which layouts), then nets.py (of which nets, and what `sesame check` says of them), plain.py (what
they are compared with), group.py (groups of workers that train many cells each), table.py. bare.py is the same on
`deepspeed.initialize` as its documentation says.
"""
