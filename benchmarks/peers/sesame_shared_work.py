"""Sesame's job with as few steps as its options allow: no repair, no deduplication, lines as sentences."""

from dataclasses import replace

from sesame_job import whole, work
from task import begin, end

from pipeline.spec import Clean, Dedup

if __name__ == "__main__":
    task = begin()
    little = replace(whole(task), clean=Clean(fix_text=False), dedup=Dedup(exact=False), sentence_boundaries="lines")
    kept = work(task, little).ledger.kept
    end(kept.documents, kept.tokens)
