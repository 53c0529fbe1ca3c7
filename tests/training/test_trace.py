"""The table of a profile, from artificial events like those of a GPU: ranges on host and device, and delayed
kernels."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType

from training.profiler import MAX_LINE_WIDTH, MAX_OPERATORS, ProfileRow, as_text, table
from training.trace import Event, events_of, read, steps_within

MS = 1_000_000  # ns
LONG = "void at::native::(anonymous namespace)::" + "vectorized_elementwise_kernel<4, " * 30 + "float>"
MAIN, AUTOGRAD = 1, 2


def step(at: int, number: int) -> Iterator[Event]:
    """A step of 10 ms on the host from `at` ms; its kernels run 4 ms later, one after the other.

    Durations on the host: data 1 ms, forward 3 ms, backward 4 ms, optimizer 1 ms, and 1 ms between these phases.
    Forward contains a module of one operator; backward runs on autograd's own thread.
    """
    first = 10 * number + 1

    def host(name: str, start: float, ms: float, thread: int = MAIN, of: int = 0, *, is_range: bool = False) -> Event:
        return Event(name, int((at + start) * MS), int(ms * MS), False, is_range, thread, id=of)

    def device(name: str, start: float, ms: float, of: int = 0, *, is_range: bool = False) -> Event:
        return Event(name, int((at + start) * MS), int(ms * MS), True, is_range, launched_by=of)

    yield host("phase: data", 0, 1, is_range=True)
    yield host("phase: forward", 1, 3, is_range=True)
    yield host("module: trunk", 1.5, 2, is_range=True)
    yield host("aten::linear", 2, 1, of=first)
    yield host("aten::addmm", 2.2, 0.5, of=first + 1)
    yield Event("cudaLaunchKernel", int((at + 2.3) * MS), int(0.1 * MS), thread=MAIN, launched_by=first + 1)
    yield host("phase: backward", 4, 4, is_range=True)
    yield host("aten::mm", 5, 2, AUTOGRAD, of=first + 2)
    yield host("phase: optimizer", 8, 1, is_range=True)
    yield host("aten::mul_", 8.2, 0.3, of=first + 3)
    yield host("aten::copy_", 9.5, 0.2, of=first + 4)
    # on the device, each range lasts from its first kernel to its last, and that of autograd's thread is missing
    yield device("phase: forward", 6, 2, is_range=True)
    yield device("module: trunk", 6, 2, is_range=True)
    yield device("gemm", 6, 2, of=first + 1)
    yield device("gemm", 8, 3, of=first + 2)
    yield device("ncclDevKernel_AllReduce", 11, 0.5, of=first + 2)
    yield device("phase: optimizer", 11.5, 1, is_range=True)
    yield device(LONG, 11.5, 1, of=first + 3)
    yield device("Memcpy HtoD", 12.5, 0.5, of=first + 4)


def recorded(steps: int) -> list[Event]:
    return [event for number in range(steps) for event in step(10 * number, number)]


def lines(steps: int = 2, of: int = 2) -> dict[tuple[str, str], ProfileRow]:
    return {(one.of, one.name): one for one in table(read(recorded(of), steps, of), 10.0 * steps)}


def test_phases_have_host_and_device_time() -> None:
    """They used to have 0 ms on the host, because the range of the same name on the device replaced it. Kernels
    launched by autograd belonged to no phase."""
    found = lines()
    host = {name: round(one.host_ms, 6) for (of, name), one in found.items() if of == "phase"}
    device = {name: round(one.device_ms, 6) for (of, name), one in found.items() if of == "phase"}
    assert host == {
        "data": 1, "forward": 3, "backward": 4, "optimizer": 1, "between these": 1, "communication in all phases": 0,
    }  # fmt: skip
    assert device == {
        "data": 0, "forward": 2, "backward": 3.5, "optimizer": 1, "between these": 0.5,
        "communication in all phases": 0.5,
    }  # fmt: skip
    assert found["phase", "forward"].calls == 1
    assert found["step", "one step"].device_ms == pytest.approx(7)  # each kernel once


def test_fractions_are_of_device_time_if_there_is_any() -> None:
    found = lines()
    assert found["phase", "backward"].share == pytest.approx(3.5 / 7)
    names = ("data", "forward", "backward", "optimizer", "between these")
    assert sum(found["phase", name].share for name in names) == pytest.approx(1)
    alone = table(read([one for one in recorded(2) if not one.is_device], 2, 2), 20.0)
    shares = {one.name: one.share for one in alone if one.of == "phase"}
    assert shares["backward"] == pytest.approx(4 / 10)


def test_modules_include_their_content_and_operators_do_not() -> None:
    found = lines()
    assert (found["module", "trunk"].host_ms, found["module", "trunk"].device_ms) == (2, 2)
    linear, addmm, mm = (found["operator", f"aten::{name}"] for name in ("linear", "addmm", "mm"))
    assert (linear.host_ms, linear.device_ms) == (0.5, 0)
    assert (addmm.host_ms, addmm.device_ms) == (pytest.approx(0.4), 2)
    assert mm.device_ms == 3.5
    assert found["kernel", "gemm"].device_ms == 5
    assert found["kernel", "gemm"].calls == 2


def test_names_are_truncated_to_the_page_width() -> None:
    """The table used to be as wide as the longest name of a kernel, 900 characters and more."""
    text = as_text(lines().values(), 2)
    assert max(map(len, text.splitlines())) <= MAX_LINE_WIDTH < len(LONG)
    assert "void at::native::" in text
    assert "of device" in text


def test_the_number_of_read_events_is_limited() -> None:
    """Reading a profile of GPT-2 took more than 20 seconds. Now fewer steps are read if there are more events than the
    table needs."""
    assert [steps_within(number, 4, most=100) for number in (0, 100, 101, 200, 10_000)] == [4, 4, 3, 2, 1]
    one, all_ = lines(1, of=3), lines(3, of=3)
    assert {key: (each.calls, each.host_ms, each.device_ms) for key, each in one.items()} == {
        key: (each.calls, pytest.approx(each.host_ms), pytest.approx(each.device_ms)) for key, each in all_.items()
    }
    assert "3 steps were recorded, too many for this table" in as_text(one.values(), 1, 3)


def test_a_kernel_without_a_known_launch_counts_by_its_own_time() -> None:
    kernels = [Event(f"kernel {number}", number, 1, True, launched_by=99) for number in range(2 * MAX_OPERATORS)]
    found = table(read([Event("phase: data", 0, MAX_OPERATORS, is_range=True), *kernels], 1, 1), 1.0)
    assert sum(one.of == "kernel" for one in found) == MAX_OPERATORS
    assert next(one.share for one in found if one.name == "data") == pytest.approx(0.5)


def test_events_of_torch_are_converted() -> None:
    def event(**values: object) -> SimpleNamespace:
        values = {
            "name": "aten::mm", "start_ns": 5, "duration_ns": 7, "device_type": DeviceType.CPU, "start_thread_id": 3,
            "correlation_id": 9, "linked_correlation_id": 0, "is_user_annotation": False, "is_hidden_event": False,
        } | values  # fmt: skip
        return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})

    found = events_of([
        event(), event(name="gemm", device_type=DeviceType.CUDA, linked_correlation_id=9), event(is_hidden_event=True),
        event(name="phase: data", is_user_annotation=True),
    ])  # fmt: skip
    assert list(found) == [
        Event("aten::mm", 5, 7, thread=3, id=9),
        Event("gemm", 5, 7, is_device=True, thread=3, id=9, launched_by=9),
        Event("phase: data", 5, 7, is_range=True, thread=3, id=9),
    ]
