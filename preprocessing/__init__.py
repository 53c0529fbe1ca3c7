"""The lowest floor: text becomes tokens, and tokens become rows and batches. Nothing here computes a net or runs a job.

Read schema.py (the columns of a document, a row and a batch) and spec.py (what a part of a recipe is), then text/ and
tokenization/, shards.py, packing/, masking/ and objectives/, rows.py, which makes a sample of these three, and
collate.py. rng.py and order.py are behind every draw.

It imports no other floor. pyproject.toml lists the packages that it may import; torch and Beam are not among them.
"""
