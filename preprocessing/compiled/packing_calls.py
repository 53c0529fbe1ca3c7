"""The call of the kernel of each packing."""

from collections.abc import Callable

from preprocessing.compiled import packing
from preprocessing.compiled.rows import CompiledRows
from preprocessing.compiled.tables import Lines, Places, RowOptions
from preprocessing.packing import BestFit, Contiguous, Packing, SegmentPair, Stream, StreamPair

Pack = Callable[[Lines, Places, RowOptions], CompiledRows]
"""Makes the columns of the sequences at these places."""


def make_pack(part: Packing) -> Pack:
    """The call for a packing. Raises ValueError if it has no kernel."""
    match part:
        case SegmentPair(num_separators=num_separators):
            has_label = part.negatives != "none"
            return lambda lines, places, options: _join(
                packing.pack_pairs(lines, places, options, num_separators), places if has_label else None
            )
        case StreamPair():
            return _pack_both_ways if part.both_ways else _pack_forward
        case Contiguous() | Stream():
            has_frame = isinstance(part, Contiguous) and part.unit == "sentence"
            return lambda lines, places, options: _join(packing.pack_contiguous(lines, places, options, has_frame))
        case BestFit(add_cls=add_cls):
            return lambda lines, places, options: _join(packing.pack_best_fit(lines, places, options, add_cls))
        case _:
            raise ValueError(f"packing {part.kind} has no kernel")


def _pack_forward(lines: Lines, places: Places, options: RowOptions) -> CompiledRows:
    return _join(packing.pack_stream_pairs(lines, places, options))


def _pack_both_ways(lines: Lines, places: Places, options: RowOptions) -> CompiledRows:
    rows = _pack_forward(lines, places, options)
    return rows._replace(position_T=packing.count_stream_positions(rows.first_B1, places.start_BP))


def _join(columns: packing.Columns, labeled: Places | None = None) -> CompiledRows:
    return CompiledRows._make((*columns, None, None if labeled is None else labeled.label_B))
