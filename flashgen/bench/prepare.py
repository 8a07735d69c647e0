"""From a method and a case to a call that is known to be right, and may be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.measure import Expected
from flashgen.bench.peers.base import Peer, Prepared
from flashgen.bench.tasks import CANNOT, FAILED, RIGHT, SIDE, WRONG, Row
from flashgen.bench.turns import WALL, Clock, time_calls
from flashgen.reference import Deviation

TRIES = 3
"""Calls of each form, of which the fastest counts, before one form is chosen."""

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def make_arrays(case: Case) -> Arrays:
    """q, k and v: standard normal."""
    rng = np.random.default_rng(0)
    q_shape = (case.batch, case.hq, case.nq, case.head_dim)
    kv_shape = (case.batch, case.hkv, case.nk, case.head_dim)
    q, k, v = (rng.standard_normal(shape, np.float32) for shape in (q_shape, kv_shape, kv_shape))
    return q, k, v


def prepare_sgemm(row: Row) -> tuple[Row, Prepared]:
    """NumPy's product of two matrices, for scale: there is nothing to check."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIDE, SIDE), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return replace(row, work=2 * SIDE**3, form=f"{SIDE}^3"), Prepared(lambda: np.matmul(a, b, out=out))


def prepare(
    method: Peer, case: Case, arrays: Arrays, expected: Expected, row: Row, clock: Clock = WALL
) -> tuple[Row, Prepared | None]:
    """The fastest of the method's forms that is right; None, with a row that says why, if there is none."""
    if reason := method.cannot(case):
        return replace(row, state=CANNOT, note=reason), None
    try:
        forms = method.forms(case, *arrays)
    except Exception as error:
        return replace(row, state=FAILED, note=explain(error)), None
    chosen, fastest, best = replace(row, state=FAILED, note="has no form"), None, float("inf")
    fates: dict[str, str] = {}
    for form, make in forms.items():
        tried, prepared = attempt(make, case, expected, replace(row, form=form))
        if tried.state == RIGHT:
            assert prepared is not None
            seconds = min(time_calls(prepared.call, 1, clock) for _ in range(TRIES))
            fates[form] = f"{1e3 * seconds:.3f} ms"
            if seconds < best:
                chosen, fastest, best = tried, prepared, seconds
        else:
            fates[form] = f"{tried.state}: {tried.note}"
            if fastest is None and chosen.state != WRONG:
                chosen = tried
    return replace(chosen, forms=fates), fastest


def attempt(
    make: Callable[[], Prepared], case: Case, expected: Expected, row: Row
) -> tuple[Row, Prepared | None]:
    """One form, called once and checked. What a library raises is its result, whatever it is."""
    try:
        prepared = make()
        o = prepared.read(prepared.call())
    except Exception as error:
        return replace(row, state=FAILED, note=explain(error)), None
    found = deviation(o, case, expected)
    row = replace(row, error=found.error, bound_share=found.share)
    if not found.share <= 1:
        times = f"{found.share:.2g} times its bound"
        note = f"error {found.error:.1e}, {times}: a wrong result, or less than float32 inside"
        return replace(row, state=WRONG, note=note), None
    return row, prepared


def deviation(o: np.ndarray, case: Case, expected: Expected) -> Deviation:
    """Of O from the reference; infinite where O has another shape or type."""
    shape = (case.batch, case.hq, case.nq, case.head_dim)
    if o.shape != shape or o.dtype != np.float32:
        return Deviation(np.inf, np.inf)
    return expected.deviation_of_o(o)


def explain(error: Exception) -> str:
    """One line of what a library said."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
