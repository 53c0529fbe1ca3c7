"""Build a corpus from text files: clean text, a tokenizer, shards of token IDs and a manifest.

Read spec.py (the keys of a corpus) and jobs.py (the jobs) first, each from top to bottom. Then read readers/ (one file
per text format), steps/ (the steps of the jobs) and runners/ (Beam on this machine or on a cluster).

Only this package imports Beam. It imports preprocessing, but neither training nor orchestration. pyproject.toml lists
the packages that it may import.
"""
