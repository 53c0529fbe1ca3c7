"""Text -> tokens -> sequences -> batches. Nothing here computes a model or runs a job.

Read schema.py (the columns of a document, a sequence and a batch) and spec.py (a part of a recipe), then text/,
tokenization/, shards.py, packing/, masking/ and objectives/, rows.py, which combines these three into a training
example, and collate.py. All random draws come from rng.py and order.py. If the shards are in an object store,
remote_corpus.py, remote_shard.py and shard_cache.py fetch them, and shard_windows.py decides when.

It imports no other package of Sesame. pyproject.toml lists the packages that it may import; torch and Beam are not
among them.
"""
