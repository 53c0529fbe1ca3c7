"""Text files -> a corpus: clean text, a tokenizer, shards of tokens and a manifest. Only this package imports Beam.

Read spec.py (the keys of a corpus) and jobs.py (the jobs, from top to bottom), then readers/ (a file for each text
format), steps/ (the steps of the jobs) and runners/ (Beam on this machine or on a cluster).

It imports preprocessing, and neither training nor orchestration. pyproject.toml lists the packages that it may import.
"""
