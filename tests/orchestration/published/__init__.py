"""Optimisers, schedules and first weights of the papers and their authors' code, and a plain implementation of them.

Read table.py (the numbers of each recipe, and where they are printed), plain.py (the mathematics, of numpy alone), then
shrunk.py (the nets of the recipes at width 128).
"""
