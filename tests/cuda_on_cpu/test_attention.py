"""A whole attention kernel in the emitted form: right on hostile sizes, and every barrier of it needed."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.problem import Problem
from flashgen.reference import attention, bound
from tests.cuda_on_cpu.build import HERE
from tests.cuda_on_cpu.runner import POLICIES, CudaOnCpu, Report

SOURCE = (HERE / "kernels" / "attention.cu").read_text(encoding="utf-8")
BR, BC, D, DV, THREADS = 16, 24, 20, 12, 128
SHARED_BYTES = 4 * (BR * D + BC * D + BC * DV + BR * BC + BR * DV)
BARRIER = "__syncthreads();"


def run(source: str, nq: int, nk: int, *, heads: tuple[int, int] = (4, 2), batch: int = 1, **options):
    """Inputs (with one strided each), outputs (poisoned before) and the report."""
    hq, hkv = heads
    rng = np.random.default_rng(7)
    q = rng.standard_normal((batch, nq, hq, D)).astype(np.float32).swapaxes(1, 2)
    k = rng.standard_normal((batch, hkv, nk, 2 * D)).astype(np.float32)[..., ::2]
    v = rng.standard_normal((batch, hkv, nk, DV)).astype(np.float32)[:, :, ::-1]
    o, lse = np.full((batch, hq, nq, DV), np.nan, np.float32), np.full((batch, hq, nq), np.nan, np.float32)
    blocks = batch * hq * -(-nq // BR)
    kernel = CudaOnCpu(source, "attention")
    report = kernel.launch(blocks, THREADS, (q, k, v, o, lse, 0.3, None), SHARED_BYTES, **options)
    return (q, k, v), (o, lse), report


def check(inputs: tuple, outputs: tuple) -> None:
    """Raise AssertionError unless the outputs are right for the inputs and scale 0.3."""
    problem = Problem(D, DV)
    bound(problem, *inputs, 0.3).check(*outputs, *attention(problem, *inputs, 0.3))


@pytest.mark.parametrize("nk", [0, 1, BC - 1, BC, BC + 1, 2 * BC + 1, 61])
@pytest.mark.parametrize("nq", [1, BR - 1, BR, BR + 1, 2 * BR + 1, 37])
def test_right_at_hostile_sizes(nq: int, nk: int):
    inputs, outputs, report = run(SOURCE, nq, nk, seed=nq + nk)
    assert report.clean, report.message
    check(inputs, outputs)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_order_of_the_threads_changes_a_bit(policy: str):
    _, (o, lse), _ = run(SOURCE, 33, 50, policy="in-order", batch=2)
    for seed in range(5):
        _, (o_again, lse_again), report = run(SOURCE, 33, 50, policy=policy, seed=seed, batch=2)
        assert report.clean, report.message
        np.testing.assert_array_equal(o_again, o)
        np.testing.assert_array_equal(lse_again, lse)


def test_unchecked_runs_give_the_same_bits():
    _, (o, _), _ = run(SOURCE, 33, 50)
    _, (unchecked, _), report = run(SOURCE, 33, 50, detect_races=False)
    assert report == Report(0, 0, 0, 0, "")
    np.testing.assert_array_equal(unchecked, o)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", range(SOURCE.count(BARRIER)))
def test_each_barrier_is_needed(number: int, policy: str):
    """The detector flags every barrier that is taken away, whatever the schedule."""
    parts = SOURCE.split(BARRIER)
    without = BARRIER.join(parts[: number + 1]) + ";" + BARRIER.join(parts[number + 1 :])
    reports = [run(without, 33, nk, policy=policy)[2] for nk in (0, 50)]
    assert sum(report.races for report in reports) > 0


def test_a_tail_that_is_not_cut_off_is_out_of_bounds():
    _, _, report = run(SOURCE.replace("first + r < t.size[2] ? ", "true ? "), 33, 50, heads=(1, 1))
    assert report.out_of_bounds == 1 and "read of 4 bytes outside every buffer" in report.message
    _, _, report = run(SOURCE.replace("if (i + r < nq) ", ""), 33, 50, heads=(1, 1))
    assert report.out_of_bounds == 1 and "write of 4 bytes outside every buffer" in report.message


def test_too_little_shared_memory_is_out_of_bounds():
    kernel, empty = CudaOnCpu(SOURCE, "attention"), np.zeros((1, 1, 1, D), np.float32)
    o, lse = np.zeros((1, 1, 1, DV), np.float32), np.zeros((1, 1, 1), np.float32)
    report = kernel.launch(1, THREADS, (empty, empty, o, o, lse, 1.0, None), SHARED_BYTES - 4)
    assert report.out_of_bounds == 1 and "of dynamic shared memory" in report.message
