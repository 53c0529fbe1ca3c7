"""`make chaos`: inject faults into small real runs at seeded moments, and compare the results with an undisturbed run.

A point is one fault at one moment. Read plan.py first: its table lists the moments of each fault (faults.py,
moments.py). play.py plays a point: it runs the command, injects the fault, and repeats the command until it succeeds.
ground.py has the text and corpus that all points share, checks.py the conditions for results, and command.py runs a
command.
"""
