"""Kernels that write the sequences of packing plans, concatenated: the columns of a Row over T tokens (schema.py).

Text and plans are arrays in many files. A kernel gets their addresses in tables, because numba cannot index a tuple of
arrays, and converts a list in each call. `Lines` and `Plans` (tables.py) describe the tables.

All kernels return first_B1 (int64: the start of each sequence, and T), ids_T (int64), types_T (int64), special_T,
word_starts_T and sentence_starts_T (bool); the last two are empty unless they are wanted.
"""

import numpy as np
from numba import int64, uint64

from preprocessing.compiled.intrinsics import load_bit, load_integer, load_u1, load_u2, load_u4, load_u8
from preprocessing.compiled.tables import Lines, Places, Plans, RowOptions
from preprocessing.jit import kernel
from preprocessing.schema import Bools, Ints

Columns = tuple[Ints, Ints, Ints, Bools, Bools, Bools]


@kernel
def locate(number_B: Ints, plans: Plans, num_parts: int) -> tuple[Ints, Ints, Ints, Ints]:
    """The plan of each sequence, int64 [B], start and stop of its parts, int64 [B, P], and its label, int64 [B]."""
    plan_B, label_B = np.empty_like(number_B), np.zeros_like(number_B)
    start_BP, stop_BP = np.empty((len(number_B), num_parts), np.int64), np.empty((len(number_B), num_parts), np.int64)
    for b in range(len(number_B)):
        k = np.searchsorted(plans.end_K, number_B[b], side="right")
        i = number_B[b] - (plans.end_K[k - 1] if k else 0)
        plan_B[b] = k
        for part in range(num_parts):
            start_BP[b, part] = load_integer(plans.start_K[k], i * num_parts + part, plans.start_width_K[k])
            stop_BP[b, part] = load_integer(plans.stop_K[k], i * num_parts + part, plans.stop_width_K[k])
        if plans.label_K[k]:
            label_B[b] = load_u1(plans.label_K[k], i)
    return plan_B, start_BP, stop_BP, label_B


@kernel
def _allocate(long_B: Ints, options: RowOptions) -> Columns:
    first_B1 = np.zeros(len(long_B) + 1, np.int64)
    for b in range(len(long_B)):
        first_B1[b + 1] = first_B1[b] + long_B[b]
    total = first_B1[-1]
    return (
        first_B1,
        np.empty(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.bool_),
        np.zeros(total if options.wants_words else 0, np.bool_),
        np.zeros(total if options.wants_sentences else 0, np.bool_),
    )


@kernel
def _write_text(lines: Lines, line: int, start: int, stop: int, columns: Columns, at: int) -> int:
    """Write the tokens start ... stop - 1 of a line at the place `at` of the columns; return the place after them."""
    _, ids_T, _, _, word_starts_T, sentence_starts_T = columns
    shard = lines.first_L1[line]
    while shard + 1 < lines.first_L1[line + 1] and lines.begin_K[shard + 1] <= start:
        shard += 1
    start, stop = start - lines.begin_K[shard], stop - lines.begin_K[shard]
    address, width = lines.ids_K[shard], lines.width_K[shard]
    if width == 2:
        for i in range(stop - start):
            ids_T[at + i] = load_u2(address, start + i)
    else:
        for i in range(stop - start):
            ids_T[at + i] = load_u4(address, start + i)
    if len(word_starts_T):
        for i in range(stop - start):
            word_starts_T[at + i] = load_bit(lines.words_K[shard], start + i)
    if len(sentence_starts_T):
        for i in range(stop - start):
            sentence_starts_T[at + i] = load_bit(lines.sentences_K[shard], start + i)
    return at + stop - start


@kernel
def _write_special(columns: Columns, at: int, token: int) -> int:
    columns[1][at], columns[3][at] = token, True
    return at + 1


@kernel
def _count_smaller(address: int, width: int, count: int, value: int) -> int:
    """The number of elements below `value` in an ascending array of `count` integers of `width` bytes."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if load_integer(address, middle, width) < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _write_stretch(
    lines: Lines, line: int, address: int, count: int, start: int, stop: int, columns: Columns, at: int, sep: int
) -> int:
    """Write the places start ... stop - 1 of a line on which `count` separators have places too."""
    low = _count_smaller(address, 8, count, start)  # the number of separators before `start`
    while start < stop:
        wall = int64(load_u8(address, low) if low < count else uint64(stop))
        end = min(wall, stop)
        at = _write_text(lines, line, start - low, end - low, columns, at)
        if wall < stop:
            at = _write_special(columns, at, sep)
            low += 1
        start = end + 1
    return at


@kernel
def _mark_starts(special_T: Bools, starts_T: Bools, first: int, stop: int) -> None:
    """No word or sentence extends across a special token."""
    starts_T[first] = True
    for t in range(first, stop):
        if special_T[t]:
            starts_T[t] = True
            if t + 1 < stop:
                starts_T[t + 1] = True


@kernel
def _finish(columns: Columns) -> Columns:
    first_B1, _, _, special_T, word_starts_T, sentence_starts_T = columns
    for b in range(len(first_B1) - 1):
        if len(word_starts_T):
            _mark_starts(special_T, word_starts_T, first_B1[b], first_B1[b + 1])
        if len(sentence_starts_T):
            _mark_starts(special_T, sentence_starts_T, first_B1[b], first_B1[b + 1])
    return columns


@kernel
def pack_pairs(lines: Lines, places: Places, options: RowOptions, num_separators: int) -> Columns:
    """SegmentPair.row of each sequence."""
    line_B, start_BP, stop_BP = places.line_B, places.start_BP, places.stop_BP
    cls, sep = options.cls, options.sep
    long_B = np.empty_like(line_B)
    for b in range(len(line_B)):
        long_b = stop_BP[b, 1] - start_BP[b, 1]
        long_B[b] = stop_BP[b, 0] - start_BP[b, 0] + 2 + (long_b + num_separators if long_b else 0)
    columns = _allocate(long_B, options)
    for b in range(len(line_B)):
        at = _write_special(columns, columns[0][b], cls)
        at = _write_text(lines, line_B[b], start_BP[b, 0], stop_BP[b, 0], columns, at)
        if stop_BP[b, 1] > start_BP[b, 1]:
            for _ in range(num_separators):
                at = _write_special(columns, at, sep)
            columns[2][at : columns[0][b + 1]] = 1
            at = _write_text(lines, line_B[b], start_BP[b, 1], stop_BP[b, 1], columns, at)
        _write_special(columns, at, sep)
    return _finish(columns)


@kernel
def pack_contiguous(lines: Lines, places: Places, options: RowOptions, has_frame: bool) -> Columns:
    """Contiguous.row of each sequence, or Stream.row; `has_frame`: between <s> and </s>."""
    line_B, start_BP, stop_BP = places.line_B, places.start_BP, places.stop_BP
    cls, sep = options.cls, options.sep
    columns = _allocate(stop_BP[:, 0] - start_BP[:, 0] + 2 * has_frame, options)
    for b in range(len(line_B)):
        at = columns[0][b]
        if has_frame:
            at = _write_special(columns, at, cls)
        separator, count, start, stop = places.separator_B[b], places.num_separators_B[b], start_BP[b, 0], stop_BP[b, 0]
        at = _write_stretch(lines, line_B[b], separator, count, start, stop, columns, at, sep)
        if has_frame:
            _write_special(columns, at, sep)
    return _finish(columns)


@kernel
def pack_best_fit(lines: Lines, places: Places, options: RowOptions, add_cls: bool) -> Columns:
    """BestFit.row of each sequence."""
    line_B, start_BP, stop_BP = places.line_B, places.start_BP, places.stop_BP
    cls, sep = options.cls, options.sep
    columns = _allocate(stop_BP[:, 0] - start_BP[:, 0] + 2 * add_cls, options)
    for b in range(len(line_B)):
        at, start, stop = columns[0][b], start_BP[b, 0], stop_BP[b, 0]
        separator, num_separators = places.separator_B[b], places.num_separators_B[b]
        address, width, num_pieces = places.piece_B[b], places.piece_width_B[b], places.num_pieces_B[b]
        passed = _count_smaller(separator, 8, num_separators, start)  # separators before `start`
        piece = _count_smaller(address, width, num_pieces, start - passed)
        if add_cls:
            at = _write_special(columns, at, cls)
        while start < stop:
            first = load_integer(address, num_pieces + piece, width)
            piece += 1
            end = load_integer(address, piece, width) + passed if piece < num_pieces else stop
            long = min(end, stop) - start  # the last piece may end before `stop`, at its separator
            if passed < num_separators:
                long = min(long, int64(load_u8(separator, passed)) - start)
            at = _write_text(lines, line_B[b], first, first + long, columns, at)
            start += long
            if start < stop and passed < num_separators and int64(load_u8(separator, passed)) == start:
                at = _write_special(columns, at, sep)
                start += 1
                passed += 1
        if add_cls:
            _write_special(columns, at, sep)
    return _finish(columns)


@kernel
def _reverse(starts_T: Bools, first: int, stop: int) -> None:
    """Turn the starts of words into their ends, and reverse their order."""
    starts_T[first : stop - 1] = starts_T[first + 1 : stop].copy()
    starts_T[stop - 1] = True
    starts_T[first:stop] = starts_T[first:stop][::-1].copy()


@kernel
def pack_stream_pairs(lines: Lines, places: Places, options: RowOptions) -> Columns:
    """StreamPair.row of each sequence; `positions` are those of `count_stream_positions`."""
    line_B, start_BP, stop_BP = places.line_B, places.start_BP, places.stop_BP
    cls, sep = options.cls, options.sep
    long_B = np.empty_like(line_B)
    for b in range(len(line_B)):
        long_B[b] = (stop_BP[b] - start_BP[b]).sum() + 3
    columns = _allocate(long_B, options)
    first_B1, ids_T, types_T, special_T, word_starts_T, sentence_starts_T = columns
    for b in range(len(line_B)):
        first, stop, line, separator, count = (
            first_B1[b],
            first_B1[b + 1],
            line_B[b],
            places.separator_B[b],
            places.num_separators_B[b],
        )
        is_backward = start_BP[b, 1] < start_BP[b, 0]
        at = first
        if is_backward:
            at = _write_special(columns, _write_special(columns, at, sep), sep)
        for step in range(3):
            part = 2 - step if is_backward else step
            start, end = start_BP[b, part], stop_BP[b, part]
            at = _write_stretch(lines, line, separator, count, start, end, columns, at, sep)
            if part == (2 if is_backward else 1):
                at = _write_special(columns, at, sep)
        if not is_backward:
            _write_special(columns, _write_special(columns, at, sep), sep)
        end_a = first + stop_BP[b, 0] - start_BP[b, 0] + stop_BP[b, 1] - start_BP[b, 1]
        types_T[end_a + 1 : stop - 1] = 1
        types_T[stop - 1] = 2
    _finish(columns)
    for b in range(len(line_B)):
        first, stop = first_B1[b], first_B1[b + 1]
        if start_BP[b, 1] < start_BP[b, 0]:
            ids_T[first:stop] = ids_T[first:stop][::-1].copy()
            special_T[first:stop] = special_T[first:stop][::-1].copy()
            if len(word_starts_T):
                _reverse(word_starts_T, first, stop)
            if len(sentence_starts_T):
                _reverse(sentence_starts_T, first, stop)
        ids_T[stop - 1] = cls
    return columns


@kernel
def count_positions(first_B1: Ints) -> Ints:
    """0, 1, 2, ... in each sequence, int64 [T]."""
    position_T = np.empty(first_B1[-1], np.int64)
    for b in range(len(first_B1) - 1):
        for t in range(first_B1[b], first_B1[b + 1]):
            position_T[t] = t - first_B1[b]
    return position_T


@kernel
def count_stream_positions(first_B1: Ints, start_BP: Ints) -> Ints:
    """The same, but counting down in the sequences that are read from the end of the text."""
    position_T = count_positions(first_B1)
    for b in range(len(first_B1) - 1):
        if start_BP[b, 1] < start_BP[b, 0]:
            for t in range(first_B1[b], first_B1[b + 1]):
                position_T[t] = first_B1[b + 1] - 1 - t
    return position_T
