"""The text of a profile names the largest loss of time, and its width and length are bounded."""

import csv
from dataclasses import replace

import pytest

from tests.training.test_trace import LONG, call, device, host, lines, recorded
from training.profile_table import (
    IDLE,
    MAX_LINE_WIDTH,
    MAX_OPERATORS,
    STEP,
    Recording,
    as_csv,
    as_text,
    summarize,
    table,
)
from training.trace import Gaps, TimeSpent, Trace, read

RECORDING = Recording(read=2, recorded=2, requested=2)


def step_of_100_ms(idle: float = 0.0, during_data: float = 0.0, **device_ms: float) -> Trace:
    """A step whose device has work for 100 ms except `idle`; purposes by their first words."""
    names = {
        "optimizer": "optimizer", "moves": "index, gather, cat and copy", "head": "head: loss", "norms": "norms",
        "attention": "attention", "sums": "activations and sums", "copies": "copies from and to the host",
    }  # fmt: skip
    busy = 100.0 - idle
    purposes = {names[name]: TimeSpent(calls=640, device=ms) for name, ms in device_ms.items()}
    purposes["matrix products"] = TimeSpent(calls=100, device=busy - sum(device_ms.values()))
    return Trace(
        steps=1, device=busy, device_span=100, launches=5_004, copies=464, purposes=purposes,
        gaps=Gaps(total=idle, during_data=during_data, num=1_204, longest=3.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (
            step_of_100_ms(idle=31),
            "The device had no work for 31 % of a step: the host launches 5,004 kernels and 464 copies per step, slower"
            " than the device completes them.",
        ),
        (
            step_of_100_ms(idle=31, during_data=30),
            "The device had no work for 31 % of a step: the host waits for batches for 30.0 of 100.0 ms.",
        ),
        (step_of_100_ms(optimizer=15), "The optimizer takes 15 % of the device's time in 640 kernels per step."),
        (step_of_100_ms(optimizer=4, moves=4), "The optimizer takes 4 % of the device's time"),
        (step_of_100_ms(moves=12), "Index, gather, cat and copy operators take 12 % of the device's time"),
        (step_of_100_ms(head=20), "The loss of the head, without its matrix products, takes 20 % of the device's time"),
        (step_of_100_ms(attention=40), "Attention takes 40 % of the device's time in 640 kernels per step."),
        (step_of_100_ms(sums=30), "Activations and sums take 30 % of the device's time"),
        (step_of_100_ms(copies=9), "Copies from and to the host take 9 % of the device's time"),
        (
            step_of_100_ms(attention=20, norms=8, idle=4),
            "Matrix products take 71 % of the device's time; the largest other part (attention) takes 21 %.",
        ),
    ],
)
def test_the_first_sentence_names_the_largest_loss(trace: Trace, expected: str) -> None:
    assert summarize(table(trace, 100.0)).startswith(expected)


@pytest.mark.parametrize(
    ("data", "optimizer", "products", "expected"),
    [
        (30, 20, 50, "Training waits for batches for 30 % of a step. More loader processes"),
        (0, 30, 70, "The optimizer takes 30 % of a step."),
        (0, 0, 40, "Python code and waiting, outside of operators, takes 60 % of a step."),
        (0, 5, 90, "Matrix products take 90 % of a step; the largest other part (optimizer) takes 5 %."),
    ],
)
def test_without_a_device_the_sentence_is_about_the_host(data, optimizer, products, expected) -> None:
    purposes = {"optimizer": TimeSpent(9, optimizer), "matrix products": TimeSpent(9, products)}
    trace = Trace(steps=1, phases={"data": TimeSpent(1, data)}, purposes=purposes)
    assert summarize(table(trace, 100.0)).startswith(expected)


def test_names_are_truncated_to_the_page_width() -> None:
    """The table used to be as wide as the longest name of a kernel, 900 characters and more."""
    text = as_text(list(lines().values()), RECORDING)
    assert max(map(len, text.splitlines())) <= MAX_LINE_WIDTH < len(LONG)
    assert "  vectorized_elementwise_kern..." in text
    assert "of device" in text


def test_kernels_of_one_template_differ_in_the_text() -> None:
    """Namespaces, parameters and the type of the array are the same for most kernels of torch."""
    start, end = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::",
        ", at::detail::Array<char*, 3> >(int, A, B)",
    )
    names = [f"{start}{one}{end}" for one in ("CUDAFunctor_add<float>", "BinaryFunctor<float, MulFunctor<float> >")]
    work = [device(name, number, 1) for number, name in enumerate(names)]
    text = as_text(table(read(work, 1), 2.0), RECORDING)
    assert "  vectorized_elementwise_kernel<4, CUDAFunctor_add<float> >  " in text
    assert "  vectorized_elementwise_kern...float, MulFunctor<float> > >  " in text


def test_the_text_shows_work_and_gaps_of_the_device() -> None:
    text = as_text(list(lines().values()), replace(RECORDING, requested=3))
    assert "Means of 2 of the 3 requested steps of the first worker. A kernel counts for the phase" in text
    (busy,) = [line for line in text.splitlines() if line.startswith("  device: busy")]
    assert busy.split()[2:] == ["7.000", "70.0", "%", "4", "launches", "of", "kernels", "and", "1", "copies"]
    (idle,) = [line for line in text.splitlines() if line.startswith("  device: no work")]
    assert idle.endswith("0.5 gaps of 0.01 ms or more; the longest 3.000 ms")


def test_what_was_left_out_is_said() -> None:
    rows = list(lines(1, of=3).values())
    assert "3 steps were recorded, too many for this table" in as_text(rows, Recording(1, 3, 3))
    assert "The beginning of one step of the first worker" in as_text(rows, Recording(1, 1, 1, is_part=True))
    on_host = table(Trace(steps=1, phases={"forward": TimeSpent(1, 5.0)}), 10.0)
    assert "torch recorded no kernels of the GPU" in as_text(on_host, Recording(1, 1, 1, misses_kernels=True))


def test_the_table_has_at_most_30_rows_of_a_kind_and_keeps_long_calls_of_the_host() -> None:
    operators = [host(f"aten::{number}", number, 0.5, of=number + 1) for number in range(99)]
    work = [call("cudaMemcpyAsync", 200, of=1, ms=50), *operators, device("gemm", 1, 1, launched_by=1)]
    rows = table(read(work, 1), 250.0)
    found = [row.name for row in rows if row.of == "operator"]
    assert len(found) == MAX_OPERATORS
    assert "cudaMemcpyAsync" in found
    assert "  cudaMemcpyAsync" in as_text(rows, Recording(1, 1, 1))


def test_the_step_lasts_as_long_as_its_kernels() -> None:
    """The host may run ahead, so that the last kernels run after its last step."""
    rows = {(row.of, row.name): row for row in table(read(recorded(1), 1), wall_ms=2.0)}
    assert rows["step", STEP].host_ms == pytest.approx(7)
    assert rows["device", IDLE].device_ms == 0


def test_the_csv_has_all_rows() -> None:
    rows = list(lines().values())
    (head, *found) = csv.reader(as_csv(rows).splitlines())
    assert head == ["of", "name", "calls", "host_ms", "device_ms", "share"]
    assert [(of, name) for of, name, *_ in found] == [(row.of, row.name) for row in rows]
    assert {row.of for row in rows} == {
        "step", "device", "host", "purpose", "phase", "module", "operator", "kernel",
    }  # fmt: skip
