"""Compiled kernels on hostile values: what broke real kernels, what nobody may see, what must spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import attention, bound, visible
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Cpu
from tests.compiled import TARGETS, Build, all_combinations, call, kernels, pairwise
from tests.faults import Case, cases
from tests.strategies import OFFSETS, Inputs, logits, make_inputs, rounded

D, DV, BR, BC = 24, 40, 20, 40
"""As in tests/test_cpp_emission.py: neither is a multiple of a vector, Br not of a register block."""
NQ, NK = 47, 95
PAYLOADS = (0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC0BEEF)
"""NaNs with low bits set; those of exp2's argument must not pass for an exponent."""

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
each_mask = pytest.mark.parametrize("causal", ALIGNMENTS)
causal_only = pytest.mark.parametrize("causal", ALIGNMENTS[1:])


def small(target: Cpu, causal: str | None) -> list[CpuKernel]:
    return all_combinations(Build(target), Problem(D, DV, causal=causal), BR, BC)


def inputs(causal: str | None, nq: int = NQ, nk: int = NK, kind: str = "plain") -> Inputs:
    return make_inputs(Problem(D, DV, causal=causal), kind, (2, 4, 2, nq, nk), 0.25, seed=7)


def check(kernel: CpuKernel, x: Inputs) -> None:
    """Within the one bound of the reference."""
    p, scale = kernel.problem, rounded(kernel.problem, x.scale)
    with np.errstate(invalid="ignore"):
        bound(p, x.q, x.k, x.v, scale).check(*call(kernel, x), *attention(p, x.q, x.k, x.v, scale))


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


FAULTS = cases()


@each_target
@pytest.mark.parametrize("fault", sorted({case.fault for case in FAULTS}))
def test_fault(target: Cpu, fault: str) -> None:
    """In tiles of 4 rows and 8 keys; where a fault is about many problems, each has one of the schedules."""
    found = [case for case in FAULTS if case.fault == fault]
    problems = list(dict.fromkeys(case.problem for case in found))
    schedules = pairwise(4, 8)
    few = len(problems) <= 2
    wanted = tuple(
        (problem, schedule)
        for n, problem in enumerate(problems)
        for schedule in (schedules if few else [schedules[n % 4]])
    )
    for kernel in kernels(Build(target), wanted):
        for case in found:
            if case.problem == kernel.problem:
                check_fault(kernel, case)


def check_fault(kernel: CpuKernel, case: Case) -> None:
    x = Inputs(case.fault, case.q, case.k, case.v, case.scale)
    try:
        case.check(*call(kernel, x))
    except AssertionError as wrong:
        raise AssertionError(f"{kernel.name}, {case}: {wrong}") from None


@each_target
@each_mask
@pytest.mark.parametrize("kind", [*OFFSETS, "rising", "falling"])
def test_far_logits(target: Cpu, causal: str | None, kind: str) -> None:
    """Offsets of 200, 6e4 and 1e30, and drops of 100 from key to key."""
    x = make_inputs(Problem(D, DV, causal=causal), kind, (1, 2, 1, NQ, NK), 0.25)
    for kernel in small(target, causal):
        check(kernel, x)


@each_target
@each_mask
def test_an_offset_that_absorbs_all_else_gives_the_mean(target: Cpu, causal: str | None) -> None:
    """At 1e30 all logits of a row are one number, and O is the mean of the visible values."""
    problem = Problem(D, DV, causal=causal)
    x = make_inputs(problem, "farthest", (1, 2, 1, NQ, NK), 0.25)
    seen = visible(problem, np.arange(NQ), NQ, NK)
    count = seen.sum(axis=1, keepdims=True)
    want = seen @ x.v[:, [0, 0]].astype(np.float64) / np.maximum(count, 1)
    within = 2**-24 * 8 * np.abs(x.v).max()
    for kernel in small(target, causal):
        o, lse = call(kernel, x)
        assert np.abs(o - want).max() < within
        far = np.where(count[:, 0] > 0, 2.5e29, -np.inf)
        np.testing.assert_allclose(lse, np.broadcast_to(far, lse.shape), rtol=1e-6)


@each_target
@each_mask
def test_a_drop_between_tiles(target: Cpu, causal: str | None) -> None:
    """Within a tile logits are near; from tile to tile they fall, or rise, by more than exp's range."""
    x = inputs(causal)
    x.q[..., 0] = 4
    for kind in ("rising", "falling"):
        x.k[..., 0] = logits(kind, Problem(D), 3).repeat(BC)[:NK]
        for kernel in small(target, causal):
            check(kernel, x)


@each_target
@each_mask
def test_tiny_values_and_zeros(target: Cpu, causal: str | None) -> None:
    """Subnormal numbers and -0.0 in every input."""
    rng = np.random.default_rng(3)
    for power in (-149, -130, -126):
        x = inputs(causal)
        tiny = replace(x, q=x.q * np.float32(2.0**power))
        v = np.ldexp(x.v, -126).astype(np.float32)
        v.flat[rng.integers(v.size, size=50)] = np.float32(2.0**-126)
        mixed = replace(x, k=np.where(rng.random(x.k.shape) < 0.5, np.ldexp(x.k, power), x.k), v=v)
        zeros = replace(x, q=np.copysign(0 * x.q, x.q), v=np.copysign(0 * x.v, x.v))
        for kernel in small(target, causal):
            for y in (tiny, mixed, zeros):
                check(kernel, y)


@each_target
@causal_only
def test_what_a_row_does_not_see_changes_no_bit_of_it(target: Cpu, causal: str) -> None:
    """NaN and inf from some key on, in K and in V: rows before see none of it, within one tile too."""
    x = inputs(causal)
    p = Problem(D, DV, causal=causal)
    for n, first in enumerate((1, 39, 40, 41, 60, 94)):
        k, v = x.k.copy(), x.v.copy()
        k[:, :, first:] = (np.nan, np.inf, -np.inf)[n % 3]
        v[:, :, first:] = (np.inf, np.nan, np.nan)[n % 3]
        blind = ~visible(p, np.arange(NQ), NQ, NK)[:, first:].any(axis=1)
        for kernel in small(target, causal):
            want, got = call(kernel, x), call(kernel, replace(x, k=k, v=v))
            for a, b in zip(want, got, strict=True):
                assert_same_bits(a[:, :, blind], b[:, :, blind])
            assert not np.isfinite(got[0][:, :, ~blind]).any()


@each_target
@each_mask
@pytest.mark.parametrize("payload", PAYLOADS, ids=hex)
def test_a_visible_nan_spreads_as_far_as_it_should(target: Cpu, causal: str | None, payload: int) -> None:
    """In k: the rows that see it. In v: their column. In q: the row. Nothing else changes a bit."""
    x = inputs(causal)
    seen = visible(Problem(D, DV, causal=causal), np.arange(NQ), NQ, NK)
    for j in (0, 39, 40, NK - 1):
        every = np.zeros((2, 4, NQ, DV), bool)
        bad_k, bad_v, bad_q = every.copy(), every.copy(), every.copy()
        bad_k[1, 2:, seen[:, j]] = True  # query heads 2 and 3 read key head 1
        bad_v[1, 2:, seen[:, j], 33] = True
        bad_q[0, 3, j % NQ, :] = seen[j % NQ].any()
        k = with_bits(x.k, (1, 1, j, D - 1), payload)
        v = with_bits(x.v, (1, 1, j, 33), payload)
        q = with_bits(x.q, (0, 3, j % NQ, 5), payload)
        for kernel in small(target, causal):
            o, lse = call(kernel, x)
            for y, bad, whole in (
                (replace(x, k=k), bad_k, True),
                (replace(x, v=v), bad_v, False),
                (replace(x, q=q), bad_q, True),
            ):
                got_o, got_lse = call(kernel, y)
                assert np.isnan(got_o[bad]).all()
                assert_same_bits(got_o[~bad], o[~bad])
                bad_row = bad.any(axis=3) & whole
                assert np.isnan(got_lse[bad_row]).all()
                assert_same_bits(got_lse[~bad_row], lse[~bad_row])


def with_bits(array: np.ndarray, at: tuple[int, ...], bits: int) -> np.ndarray:
    """A copy with one element of exactly these bits."""
    copy = array.copy()
    copy.view(np.uint32)[at] = bits
    return copy


@each_target
def test_large_and_negative_scales(target: Cpu) -> None:
    """A scale's sign is not assumed (F15); and 0 weighs all visible keys alike."""
    kernels_of = {c: small(target, c) for c in ALIGNMENTS}
    for causal, found in kernels_of.items():
        for scale in (-0.7, 0.0, 40.0, 2.0**-126):
            for kernel in found:
                check(kernel, replace(inputs(causal), scale=scale))
    two = kernels(Build(target), ((Problem(1), Schedule(br=4, bc=8)),))[0]
    k = np.array([300, -300], np.float32).reshape(1, 1, 2, 1)
    x = Inputs(
        "F15", np.ones((1, 1, 1, 1), np.float32), k, np.array([1, 2], np.float32).reshape(k.shape), -1.0
    )
    assert call(two, x)[0].item() == 2
