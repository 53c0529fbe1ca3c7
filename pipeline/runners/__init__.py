"""Where Beam runs: running.py runs a graph, workers.py owns the processes, forkserver.py starts them quickly."""

from pipeline.runners.running import Report, beam, pipeline, watched

__all__ = ["Report", "beam", "pipeline", "watched"]
