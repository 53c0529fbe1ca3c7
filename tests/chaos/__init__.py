"""`make chaos`: small real runs that are disturbed at seeded moments, and what must be true of them in the end.

Read plan.py first: which faults strike at which moments. play.py is one point: the command, the fault, the command
again until it is finished. ground.py is what all points share, faults.py and moments.py are the two sides of the table,
checks.py says what must be true, command.py is a command as a user starts it.
"""
