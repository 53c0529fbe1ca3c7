"""Files of text become a corpus: clean text, a vocabulary, shards of tokens, a manifest. The only Beam.

Read spec.py (what a corpus is made of) and jobs.py (the jobs, each from top to bottom), then readers/ (one file for
each format of text), steps/ (what the jobs are made of) and runners/ (Beam on this machine or on a cluster).

It imports preprocessing, and neither training nor orchestration. pyproject.toml lists the packages that it may import.
"""
