"""Times of a trace, from artificial events like those of a GPU: ranges on host and device, and delayed kernels."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType

from training.profile_table import ProfileRow, table
from training.trace import Event, Trace, events_of, read, steps_within

MS = 1_000_000  # ns
LONG = "void at::native::(anonymous namespace)::" + "vectorized_elementwise_kernel<4, " * 30 + "float>"
MAIN, AUTOGRAD = 1, 2


def host(name: str, start: float, ms: float, of: int = 0, thread: int = MAIN, **more: int) -> Event:
    """An operator, or with a prefix, a range."""
    is_range = name.startswith(("phase: ", "module: "))
    return Event(name, int(start * MS), int(ms * MS), is_range=is_range, thread=thread, id=of, **more)


def call(name: str, start: float, of: int, launched_by: int = 0, ms: float = 0.01, thread: int = MAIN) -> Event:
    return Event(name, int(start * MS), int(ms * MS), False, False, thread, of, launched_by, is_call=True)


def device(name: str, start: float, ms: float, launched_by: int = 0, of: int = 0, *, is_range: bool = False) -> Event:
    return Event(name, int(start * MS), int(ms * MS), True, is_range, id=of, launched_by=launched_by)


def step(at: int, number: int) -> Iterator[Event]:
    """A step of 10 ms on the host from `at` ms; its kernels run 4 ms later, one after the other.

    Durations on the host: data 1 ms, forward 3 ms, backward 4 ms, optimizer 1 ms, and 1 ms between these phases.
    Forward contains a module of one operator; backward runs on autograd's own thread.
    """
    first = 10 * number + 1
    yield host("phase: data", at, 1)
    yield host("phase: forward", at + 1, 3)
    yield host("module: trunk", at + 1.5, 2)
    yield host("aten::linear", at + 2, 1, first)
    yield host("aten::addmm", at + 2.2, 0.5, first + 1)
    yield call("cudaLaunchKernel", at + 2.3, of=0, launched_by=first + 1, ms=0.1)
    yield host("phase: backward", at + 4, 4)
    yield host("aten::mm", at + 5, 2, first + 2, AUTOGRAD)
    yield host("phase: optimizer", at + 8, 1)
    yield host("aten::mul_", at + 8.2, 0.3, first + 3)
    yield host("aten::copy_", at + 9.5, 0.2, first + 4)
    # on the device, each range lasts from its first kernel to its last, and that of autograd's thread is missing
    yield device("phase: forward", at + 6, 2, is_range=True)
    yield device("module: trunk", at + 6, 2, is_range=True)
    yield device("gemm", at + 6, 2, first + 1)
    yield device("gemm", at + 8, 3, first + 2)
    yield device("ncclDevKernel_AllReduce", at + 11, 0.5, first + 2)
    yield device("phase: optimizer", at + 11.5, 1, is_range=True)
    yield device(LONG, at + 11.5, 1, first + 3)
    yield device("Memcpy HtoD", at + 12.5, 0.5, first + 4)


def recorded(steps: int) -> list[Event]:
    return [event for number in range(steps) for event in step(10 * number, number)]


def lines(steps: int = 2, of: int = 2) -> dict[tuple[str, str], ProfileRow]:
    trace = read(recorded(of), steps, 10 * steps * MS if steps < of else float("inf"))
    return {(one.of, one.name): one for one in table(trace, 10.0 * steps)}


def test_phases_have_host_and_device_time() -> None:
    """They used to have 0 ms on the host, because the range of the same name on the device replaced it. Kernels
    launched by autograd belonged to no phase."""
    found = lines()
    of_host = {name: round(one.host_ms, 6) for (of, name), one in found.items() if of == "phase"}
    of_device = {name: round(one.device_ms, 6) for (of, name), one in found.items() if of == "phase"}
    assert of_host == {
        "data": 1, "forward": 3, "backward": 4, "optimizer": 1, "between these": 1, "communication in all phases": 0,
    }  # fmt: skip
    assert of_device == {
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
    alone = table(read([one for one in recorded(2) if not one.is_device], 2), 20.0)
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


def test_each_kernel_has_a_purpose() -> None:
    found = {name: one for (of, name), one in lines().items() if of == "purpose"}
    assert {name: (one.calls, one.device_ms) for name, one in found.items()} == {
        "matrix products": (2, 5), "optimizer": (1, 1), "copies from and to the host": (1, 0.5),
        "communication": (1, 0.5),
    }  # fmt: skip
    assert sum(one.share for one in found.values()) == pytest.approx(1)


def test_the_number_of_read_events_is_limited() -> None:
    """Reading a profile of GPT-2 took more than 20 seconds. Now fewer steps are read if there are more events than the
    table needs. The end of the last step is given: it used to be the start of the phase "data" after the next one."""
    assert [steps_within(number, 4, most=100) for number in (0, 100, 101, 200, 10_000)] == [4, 4, 3, 2, 1]
    one, all_ = lines(1, of=3), lines(3, of=3)
    per_step = [key for key in one if key != ("device", "no work") and key[0] != "host"]  # the last tail differs
    assert {key: (one[key].calls, one[key].device_ms) for key in per_step if key[0] != "device"} == {
        key: (all_[key].calls, pytest.approx(all_[key].device_ms)) for key in per_step if key[0] != "device"
    }


def test_a_kernel_without_a_known_launch_counts_by_its_own_time() -> None:
    kernels = [Event(f"kernel {number}", number, 1, True, launched_by=99) for number in range(60)]
    found = table(read([Event("phase: data", 0, 30, is_range=True), *kernels], 1), 1.0)
    assert sum(one.of == "kernel" for one in found) == 30
    assert next(one.share for one in found if (one.of, one.name) == ("phase", "data")) == pytest.approx(0.5)


def phases_of(trace: Trace) -> dict[str, float]:
    return {name: round(spent.device, 6) for name, spent in trace.phases.items()}


def purposes_of(trace: Trace) -> dict[str, float]:
    return {name: round(spent.device, 6) for name, spent in trace.purposes.items()}


FORWARD = [host("phase: forward", 0, 2), host("phase: backward", 2, 2), host("phase: optimizer", 4, 2)]


def test_kernels_of_compiled_code_are_found_by_their_driver_call() -> None:
    """No operator is open when compiled code launches a kernel with cuLaunchKernelEx, so the kernel has no link."""
    trace = read([
        *FORWARD,
        call("cuLaunchKernelEx", 1, of=501), device("triton_per_fused_add_native_layer_norm_3", 5, 1, of=501),
        call("cuLaunchKernel", 3, of=502, thread=AUTOGRAD), device("triton_poi_fused_gelu_backward_1", 6, 1, of=502),
    ], 1)  # fmt: skip
    assert phases_of(trace) == {"forward": 1, "backward": 1, "optimizer": 0}
    assert purposes_of(trace) == {"norms": 1, "activations and sums": 1}


def test_a_cuda_graph_is_one_launch_of_many_kernels() -> None:
    kernels = [device("gemm", 5 + number, 0.5, of=7) for number in range(3)]
    trace = read([*FORWARD, call("cudaGraphLaunch", 1, of=7), *kernels], 1)
    assert (phases_of(trace)["forward"], trace.launches, trace.kernels["gemm"].calls) == (1.5, 1, 3)


def test_ids_of_operators_and_of_driver_calls_are_not_mixed_up() -> None:
    """A call without an operator used to replace the operator with the same number."""
    trace = read([
        *FORWARD,
        host("aten::mm", 1, 0.5, of=9), call("cudaLaunchKernel", 1.1, of=3, launched_by=9),
        device("gemm", 5, 1, launched_by=9, of=3),
        call("cudaEventRecord", 4.5, of=9), host("aten::mul_", 4.6, 0.1, of=3),
    ], 1)  # fmt: skip
    assert phases_of(trace)["forward"] == 1
    assert trace.operators["aten::mm"].device == 1
    assert trace.operators["cudaEventRecord"].device == trace.operators["aten::mul_"].device == 0


def test_backward_kernels_belong_to_the_modules_of_the_forward_pass() -> None:
    """Autograd's thread runs no modules; a sequence number names the operator of the forward pass."""
    trace = read([
        *FORWARD,
        host("module: trunk", 0.1, 0.5), host("aten::mm", 0.2, 0.1, of=1, sequence=10),
        host("module: heads.next", 1, 0.5), host("aten::mm", 1.1, 0.1, of=2, sequence=11),
        host("aten::exp", 1.3, 0.1, of=3, sequence=12),
        host("autograd::engine::evaluate_function: ExpBackward0", 2.1, 0.2, 4, AUTOGRAD, sequence=12, forward_thread=1),
        host("aten::mul", 2.2, 0.1, 5, AUTOGRAD),
        host("MmBackward0", 2.4, 0.2, 6, AUTOGRAD, sequence=11, forward_thread=1),
        host("aten::mm", 2.45, 0.1, 7, AUTOGRAD),
        host("MmBackward0", 2.7, 0.2, 8, AUTOGRAD, sequence=10, forward_thread=1),
        host("aten::mm", 2.75, 0.1, 9, AUTOGRAD),
        device("elementwise", 5, 1, 5), device("gemm", 6, 2, 7), device("gemm", 8, 4, 9),
    ], 1)  # fmt: skip
    assert purposes_of(trace) == {"head: loss": 1, "head: matrix products": 2, "matrix products": 4}
    assert trace.modules["trunk"].device == 0  # modules include the forward pass only


def test_gaps_are_times_without_any_kernel_on_any_stream() -> None:
    trace = read([
        host("phase: data", 4, 3),
        *(device("gemm", start, ms) for start, ms in ((0, 2), (1, 2), (3.001, 1), (7, 1), (7.5, 0.1))),
    ], 1)  # fmt: skip
    gaps = trace.gaps
    assert (gaps.num, gaps.total, gaps.longest) == (1, pytest.approx(3.0), pytest.approx(2.999))
    assert gaps.during_data == pytest.approx(2.999)
    assert trace.device_span == 8


def test_evaluations_between_steps_are_left_out() -> None:
    pause = host("phase: pause", 6, 4)
    kernels = [call("cudaLaunchKernel", 1, of=1), device("gemm", 2, 1, of=1)]
    evaluation = [host("phase: forward", 6.5, 3), call("cudaLaunchKernel", 7, of=2), device("gemm", 8, 1, of=2)]
    later = [call("cudaLaunchKernel", 11, of=3), device("gemm", 11, 1, of=3)]
    trace = read([*FORWARD, *kernels, *evaluation, *later], 1, stamps=[*FORWARD, evaluation[0]], pauses=[pause])
    assert (trace.device, trace.launches, trace.device_span, trace.gaps.total) == (2, 2, 6, 4)
    assert trace.phases["forward"].calls == 1


def test_the_host_waits_in_synchronizing_calls_and_for_a_full_queue() -> None:
    calls = [call("cudaStreamSynchronize", 1, 3, ms=0.5), call("Command Buffer Full", 2, 0, ms=0.25)]
    assert read([*calls, call("cudaMemcpyAsync", 3, 4)], 1).waits == 0.75


def test_ranges_end_with_the_part_that_is_read() -> None:
    """If only the beginning of a step is read, its phase has not ended."""
    phases = read([host("phase: forward", 0, 5), host("aten::mm", 4, 0.5)], 1, end=2 * MS, stamps=FORWARD[:1]).phases
    assert phases["forward"].host == 2


def test_without_a_device_operators_have_purposes_and_communication_counts_while_no_operator_runs() -> None:
    trace = read([
        *FORWARD, host("aten::addmm", 1, 1, of=1), host("aten::mm", 1.2, 0.5, of=2), host("aten::mul", 4.5, 0.5, of=3),
        host("gloo:all_reduce", 1.5, 2, thread=9),
    ], 1)  # fmt: skip
    assert {name: round(spent.host, 6) for name, spent in trace.purposes.items()} == {
        "matrix products": 1, "optimizer": 0.5, "communication": 1.5,
    }  # fmt: skip
    assert (trace.sent.calls, trace.sent.host) == (1, 2)


@pytest.mark.parametrize("lost", [[], [host("phase: forward", 0, 0)]], ids=["missing", "zero"])
def test_own_stamps_replace_phases_that_torch_has_lost(lost: Sequence[Event]) -> None:
    kernels = [call("cudaLaunchKernel", 3, of=1), device("gemm", 5, 1, of=1)]
    trace = read([*lost, *kernels], 1, stamps=FORWARD)
    assert {name: spent.host for name, spent in trace.phases.items()} == {"forward": 2, "backward": 2, "optimizer": 2}
    assert phases_of(trace)["backward"] == 1
    exact = [host("phase: forward", 0, 1.9), host("phase: backward", 2, 2), host("phase: optimizer", 4, 2)]
    assert read([*exact, *kernels], 1, stamps=FORWARD).phases["forward"].host == pytest.approx(1.9)


def kineto(**values: object) -> SimpleNamespace:
    """An event as torch returns it."""
    values = {
        "name": "aten::mm", "start_ns": 5, "duration_ns": 7, "device_type": DeviceType.CPU, "start_thread_id": 3,
        "correlation_id": 9, "linked_correlation_id": 0, "is_user_annotation": False, "is_hidden_event": False,
        "sequence_nr": -1, "fwd_thread_id": 0,
    } | values  # fmt: skip
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


CUDA = DeviceType.CUDA


def test_events_of_torch_are_converted() -> None:
    found = events_of([
        kineto(sequence_nr=4, fwd_thread_id=1), kineto(name="gemm", device_type=CUDA, linked_correlation_id=9),
        kineto(is_hidden_event=True), kineto(name="phase: data", is_user_annotation=True),
        kineto(name="cuLaunchKernelEx"),
    ])  # fmt: skip
    assert list(found) == [
        Event("aten::mm", 5, 7, thread=3, id=9, sequence=4, forward_thread=1),
        Event("gemm", 5, 7, is_device=True, thread=3, id=9, launched_by=9),
        Event("phase: data", 5, 7, is_range=True, thread=3, id=9),
        Event("cuLaunchKernelEx", 5, 7, thread=3, id=9, is_call=True),
    ]


@pytest.mark.parametrize(
    "annotation",
    [
        {"is_user_annotation": True},
        {"activity_type": "gpu_user_annotation"},
        {"name": "phase: forward"},  # a version of torch that calls it neither
    ],
)
def test_ranges_on_the_device_are_no_kernels(annotation: dict[str, object]) -> None:
    on_device = kineto(**({"name": "Optimizer.step", "device_type": CUDA} | annotation))
    kernel = kineto(
        name="gemm", device_type=CUDA, **({"activity_type": "kernel"} if "activity_type" in annotation else {})
    )
    waits = kineto(name="Stream Wait Event", device_type=CUDA)
    trace = read(events_of([on_device, kernel, waits]), 1)
    assert list(trace.kernels) == ["gemm"]


def test_a_range_on_the_device_is_known_by_the_one_on_the_host() -> None:
    ranges = [host("x", 0, 1)._replace(is_range=True), host("triton_mm", 1, 1)._replace(is_range=True)]
    trace = read([*ranges, device("x", 2, 1), device("triton_mm", 3, 1)], 1)
    assert list(trace.kernels) == ["triton_mm"]  # torch.compile also records a range for each of its kernels
