"""Optimizers, schedules and initial weights from the papers and the authors' code, and an independent implementation.

Read table.py (the numbers of each recipe, with their sources), plain.py (the mathematics in numpy only), then shrunk.py
(the models of the recipes at width 128).
"""
