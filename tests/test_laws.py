"""Laws of attention that need no reference, on compiled kernels; bits where bits are promised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from flashgen.targets.cpu import Cpu
from tests.compiled import TARGETS, Build, all_combinations, call
from tests.strategies import KINDS, Inputs, lengths, make_inputs, rounded

D, DV, BR, BC = 24, 40, 20, 40
SHAPES = ((D, DV, BR, BC, "float32"), (5, 3, 5, 7, "float32"), (9, 12, 20, 24, "float64"))
"""D, Dv, Br, Bc: those of tests/test_hostile.py, and tiles smaller than a register block; and a type."""

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


@cache
def alike(target: Cpu, causal: str | None, shape: int) -> list[CpuKernel]:
    """All combinations for one problem and one size of tiles."""
    d, dv, br, bc, dtype = SHAPES[shape]
    return all_combinations(Build(target), Problem(d, dv, dtype, causal), br, bc)


@st.composite
def cases(draw, causal: Iterable[str | None] = ALIGNMENTS, kinds: Iterable[str] = ("plain",), keys: int = 0):
    """A function from a target to kernels of one problem, and inputs for them with at least so many keys."""
    mask, shape = draw(st.sampled_from(list(causal))), draw(st.integers(0, len(SHAPES) - 1))
    d, dv, br, bc, dtype = SHAPES[shape]
    hkv, group = draw(st.sampled_from(((1, 1), (2, 1), (1, 4), (2, 3))))
    nq, nk = draw(lengths(br)), draw(lengths(bc).filter(lambda n: n >= keys))
    sizes = (draw(st.integers(1, 2)), hkv * group, hkv, nq, nk)
    scale = draw(st.sampled_from((0.25, 1.0, -0.7, 0.0)))
    problem, seed = Problem(d, dv, dtype, mask), draw(st.integers(0, 2**32 - 1))
    x = make_inputs(problem, draw(st.sampled_from(list(kinds))), sizes, scale, seed)
    return (lambda target: alike(target, mask, shape)), x


def one_of(found: list[CpuKernel], data: st.DataObject) -> CpuKernel:
    return data.draw(st.sampled_from(found))


def assert_same_bits(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], why: object = ""
) -> None:
    """O and lse; any NaN is as good as another."""
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=str(why), strict=True)
        zeros = (x == 0) & (y == 0)
        np.testing.assert_array_equal(np.signbit(x[zeros]), np.signbit(y[zeros]), err_msg=str(why))


def assert_close(kernel: CpuKernel, x: Inputs, got: tuple, want: tuple) -> None:
    """Two results for the same attention are within the one bound of each other."""
    bound(kernel.problem, x.q, x.k, x.v, rounded(kernel.problem, x.scale)).check(*got, *want)


@each_target
@given(case=cases(kinds=KINDS))
def test_order_skip_and_threads_change_no_bit(target, case):
    """For tiles of one size; lazy rescaling divides later and rounds otherwise."""
    alternatives, x = case
    for rescale in ("eager", "lazy"):
        found = [kernel for kernel in alternatives(target) if f"_{rescale}_" in kernel.name]
        assert len(found) > 1
        want = call(found[0], x)
        for kernel in found:
            for threads in (1, 3):
                assert_same_bits(call(kernel, x, threads), want, kernel)


@each_target
@given(case=cases(), data=st.data())
def test_a_row_does_not_depend_on_other_rows_heads_or_batches(target, case, data):
    """Also where it lies elsewhere in a tile. Bottom-right counts rows from the last, top-left from 0."""
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    batch, heads, rows, _ = x.q.shape
    o, lse = call(kernel, x)
    b, h = data.draw(st.integers(0, batch - 1)), data.draw(st.integers(0, heads - 1))
    first = data.draw(st.integers(0, rows)) if kernel.problem.causal != "top-left" else 0
    last = data.draw(st.integers(first, rows)) if kernel.problem.causal != "bottom-right" else rows
    g = h // (heads // x.k.shape[1])
    one, few = slice(b, b + 1), slice(first, last)
    y = replace(x, q=x.q[one, h : h + 1, few], k=x.k[one, g : g + 1], v=x.v[one, g : g + 1])
    assert_same_bits(call(kernel, y), (o[one, h : h + 1, few], lse[one, h : h + 1, few]), kernel)


@each_target
@given(case=cases(causal=(None, "top-left"), keys=1), data=st.data())
def test_one_visible_key_gives_its_value_to_the_bit(target, case, data):
    """However far its logit; -0.0 becomes 0.0."""
    alternatives, x = case
    size = data.draw(st.sampled_from((1.0, 1e-30, 1e10, 1e18)))
    y = replace(x, q=x.q[:, :, :1] * x.q.dtype.type(size))
    if all(k.problem.causal is None for k in alternatives(target)):
        y = replace(y, k=y.k[:, :, :1], v=y.v[:, :, :1])
    group = x.q.shape[1] // x.k.shape[1]
    want = np.repeat(y.v[:, :, :1], group, axis=1)[:, :, : y.q.shape[2]]
    for kernel in alternatives(target):
        np.testing.assert_array_equal(call(kernel, y)[0], want)


@each_target
@given(case=cases(kinds=("plain", "rising", "falling")), data=st.data())
def test_constant_values_stay(target, case, data):
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    value = x.v.dtype.type(data.draw(st.sampled_from((1.0, -3.7, 1e20, 1e-20, 0.0))))
    y = replace(x, v=np.full_like(x.v, value))
    o, lse = call(kernel, y)
    assert_close(kernel, y, (o, lse), (np.where(np.isinf(lse), 0, value)[..., None] + 0 * o, lse))


@each_target
@given(case=cases(causal=[None]), data=st.data())
def test_keys_may_come_in_any_order(target, case, data):
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    order = np.array(data.draw(st.permutations(range(x.k.shape[2]))), int)
    moved = replace(x, k=x.k[:, :, order], v=x.v[:, :, order])
    assert_close(kernel, x, call(kernel, moved), call(kernel, x))


@each_target
@given(case=cases(), data=st.data())
def test_shifting_all_logits_shifts_lse_and_nothing_else(target, case, data):
    """The shift comes in through the last dimension, in which q is 1; 64 / scale is exact."""
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    q, k = x.q.copy(), x.k.copy()
    q[..., -1], k[..., -1] = 1, np.round(k[..., -1] * 64) / 64
    far = k.copy()
    far[..., -1] += 256
    near, shifted = replace(x, q=q, k=k, scale=0.25), replace(x, q=q, k=far, scale=0.25)
    o, lse = call(kernel, near)
    assert_close(kernel, shifted, call(kernel, shifted), (o, lse.astype(np.longdouble) + 64))


@each_target
@given(case=cases(causal=["top-left"]), data=st.data())
def test_appended_keys_that_no_row_sees_change_no_bit(target, case, data):
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    rows, keys = x.q.shape[2], x.k.shape[2]
    extra = data.draw(st.integers(1, 2 * BC + 1))
    short = max(rows - keys, 0)  # as many are still seen by the last rows: give these to both
    rng = np.random.default_rng(1)
    k, v = (np.concatenate([a, rng.normal(size=(*a.shape[:2], short, a.shape[3])).astype(a.dtype)], axis=2)
            for a in (x.k, x.v))  # fmt: skip
    base = replace(x, k=k, v=v)
    bad = rng.choice(np.array([np.nan, np.inf, -np.inf], k.dtype), (2, *k.shape[:2], extra, max(D, DV)))
    k, v = (np.concatenate([a, b[..., : a.shape[3]]], axis=2) for a, b in zip((k, v), bad, strict=True))
    assert_same_bits(call(kernel, replace(x, k=k, v=v)), call(kernel, base), kernel)


@each_target
@given(case=cases(causal=[None], kinds=("plain", "rising", "falling")), data=st.data())
def test_parts_merge_by_their_lse(target, case, data):
    """Also where a part is empty."""
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    n = data.draw(st.integers(0, x.k.shape[2]))
    parts = [call(kernel, replace(x, k=x.k[:, :, s], v=x.v[:, :, s])) for s in (slice(n), slice(n, None))]
    (o1, lse1), (o2, lse2) = ((o.astype(np.longdouble), lse.astype(np.longdouble)) for o, lse in parts)
    lse = np.logaddexp(lse1, lse2)
    top = np.where(np.isinf(lse), 0, lse)
    weights = (np.exp(part - top)[..., None] for part in (lse1, lse2))
    merged = sum(w * o for w, o in zip(weights, (o1, o2), strict=True))
    scale = rounded(kernel.problem, x.scale)
    assert_close(kernel, x, (merged, lse), attention(kernel.problem, x.q, x.k, x.v, scale))


@each_target
@given(case=cases(causal=[None], keys=1), data=st.data())
def test_a_duplicated_key_is_a_bias_of_ln_2(target, case, data):
    """The bias comes in through one dimension, in which q is 1."""
    alternatives, x = case
    kernel = one_of(alternatives(target), data)
    q, k = x.q.copy(), x.k.copy()
    q[..., 0], k[..., 0] = 1, 0
    j = data.draw(st.integers(0, k.shape[2] - 1))
    twice = replace(x, q=q, k=np.insert(k, j, k[:, :, j], axis=2), v=np.insert(x.v, j, x.v[:, :, j], axis=2))
    biased = k.copy()
    biased[:, :, j, 0] = np.log(2)
    once = replace(twice, k=biased, v=x.v, scale=1.0)
    assert_close(kernel, once, call(kernel, replace(twice, scale=1.0)), call(kernel, once))


@each_target
def test_all_keys_twice_is_ln_2_in_lse(target: Cpu) -> None:
    x = make_inputs(Problem(D, DV), "plain", (1, 2, 1, 33, 95), 0.25)
    twice = replace(x, k=np.concatenate([x.k, x.k], axis=2), v=np.concatenate([x.v, x.v], axis=2))
    for kernel in alike(target, None, 0):
        o, lse = call(kernel, x)
        assert_close(kernel, twice, call(kernel, twice), (o, lse.astype(np.longdouble) + np.log(2)))


@each_target
def test_both_alignments_are_one_mask_for_as_many_rows_as_keys(target: Cpu) -> None:
    x = make_inputs(Problem(D, DV), "plain", (1, 2, 1, 61, 61), 0.25)
    for a, b in zip(alike(target, "bottom-right", 0), alike(target, "top-left", 0), strict=True):
        assert_same_bits(call(a, x), call(b, x), a)
