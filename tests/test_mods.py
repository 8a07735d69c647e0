"""The library of masks and scores against their definitions, written out; and options of a call, combined."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashgen import mods
from flashgen.errors import InvalidArgument
from flashgen.evaluate import evaluate
from flashgen.mods import (
    alibi,
    alibi_slopes,
    and_masks,
    block_sparse,
    butterfly,
    causal,
    chain,
    dilated,
    document,
    key_lengths,
    not_mask,
    or_masks,
    prefix_lm,
    relative_bias,
    sliding_window,
    softcap,
)
from flashgen.problem import CAUSAL
from flashgen.trace import trace

BATCH, HEADS, NQ, NK = 2, 3, 7, 9
RNG = np.random.default_rng(0)
IDS = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3], np.int32)
BATCHED = RNG.integers(0, 3, (BATCH, NK)).astype(np.int64)
LAYOUT = RNG.random((HEADS, 4, 3)) < 0.5
TABLE = RNG.normal(size=(HEADS, 5)).astype(np.float32)
SLOPES = RNG.random((BATCH, HEADS)).astype(np.float32)
SCORES = RNG.normal(size=(BATCH, HEADS, NQ, NK)) * 3


def grid(function, kind: str = "mask", nq: int = NQ, nk: int = NK) -> np.ndarray:
    """What a mod says of every element, (B, H, Nq, Nk)."""
    traced = trace(function, kind)
    b, h, q, k = np.ogrid[:BATCH, :HEADS, :nq, :nk]
    at = {"b": b, "h": h, "q": q, "k": k, "Nq": nq, "Nk": nk, "score": SCORES[:, :, :nq, :nk]}
    return np.broadcast_to(evaluate(traced.expression, at, traced.values), (BATCH, HEADS, nq, nk))


def written(definition, nq: int = NQ, nk: int = NK) -> np.ndarray:
    """The same, of a function of plain numbers."""
    out = np.empty((BATCH, HEADS, nq, nk), object)
    for place in np.ndindex(out.shape):
        out[place] = definition(*place)
    return out


def at(q: int, alignment: str, nq: int = NQ, nk: int = NK) -> int:
    return q + nk - nq if alignment == "bottom-right" else q


@pytest.mark.parametrize("alignment", CAUSAL)
@pytest.mark.parametrize(("nq", "nk"), [(NQ, NK), (7, 3), (1, 1)])
def test_masks_with_positions(alignment: str, nq: int, nk: int) -> None:
    def check(mask, definition) -> None:
        np.testing.assert_array_equal(grid(mask, nq=nq, nk=nk), written(definition, nq, nk).astype(bool))

    def place(q: int) -> int:
        return at(q, alignment, nq, nk)

    check(causal(alignment), lambda b, h, q, k: k <= place(q))
    check(prefix_lm(2, alignment), lambda b, h, q, k: k < 2 or k <= place(q))
    check(dilated(3, alignment), lambda b, h, q, k: (place(q) - k) % 3 == 0)
    for left, right in ((0, 0), (2, 0), (0, 2), (1, 3)):
        check(
            sliding_window(left, right, alignment),
            lambda b, h, q, k, left=left, right=right: place(q) - left <= k <= place(q) + right,
        )
    check(sliding_window(2, None, alignment), lambda b, h, q, k: place(q) - 2 <= k)
    check(sliding_window(None, 1, alignment), lambda b, h, q, k: k <= place(q) + 1)
    check(sliding_window(None, None, alignment), lambda b, h, q, k: True)


@pytest.mark.parametrize(
    ("mask", "definition"),
    [
        (document(IDS), lambda b, h, q, k: IDS[q] == IDS[k]),
        (document(IDS[2:], IDS), lambda b, h, q, k: IDS[q + 2] == IDS[k]),
        (document(BATCHED), lambda b, h, q, k: BATCHED[b, q] == BATCHED[b, k]),
        (document(IDS, BATCHED), lambda b, h, q, k: IDS[q] == BATCHED[b, k]),
        (key_lengths(np.array([4, 0])), lambda b, h, q, k: k < [4, 0][b]),
        (block_sparse(LAYOUT, 2, 4), lambda b, h, q, k: LAYOUT[h, q // 2, k // 4]),
        (block_sparse(LAYOUT[0], 2, 4), lambda b, h, q, k: LAYOUT[0, q // 2, k // 4]),
        (
            block_sparse(LAYOUT[None, :, :1, :1], 4, 8),
            lambda b, h, q, k: b == 0 and q < 4 and k < 8 and LAYOUT[h, 0, 0],
        ),
        (butterfly(NK, 2), lambda b, h, q, k: (q // 2 ^ k // 2) in (0, 1, 2, 4, 8)),
        (butterfly(0, 2), lambda b, h, q, k: False),
        (and_masks(), lambda b, h, q, k: True),
        (or_masks(), lambda b, h, q, k: False),
        (not_mask(and_masks()), lambda b, h, q, k: False),
        (and_masks(causal("top-left"), document(IDS)), lambda b, h, q, k: k <= q and IDS[q] == IDS[k]),
        (or_masks(causal("top-left"), document(IDS)), lambda b, h, q, k: k <= q or IDS[q] == IDS[k]),
        (not_mask(causal("top-left")), lambda b, h, q, k: k > q),
        (
            or_masks(sliding_window(1, 0, "top-left"), sliding_window(4, -0, "top-left")),
            lambda b, h, q, k: q - 4 <= k <= q,
        ),
    ],
)
def test_masks(mask, definition) -> None:
    np.testing.assert_array_equal(grid(mask), written(definition).astype(bool))


@pytest.mark.parametrize("alignment", CAUSAL)
def test_scores(alignment: str) -> None:
    def check(score, definition) -> None:
        np.testing.assert_allclose(grid(score, "score"), written(definition).astype(float), rtol=1e-14)

    def cap(s: float) -> float:
        return 2 * math.tanh(s / 2)

    def away(q: int, k: int) -> int:
        return k - at(q, alignment)

    slopes = alibi_slopes(HEADS)
    check(softcap(2), lambda *i: cap(SCORES[i]))
    check(alibi(HEADS, alignment), lambda b, h, q, k: SCORES[b, h, q, k] - float(slopes[h]) * abs(away(q, k)))
    check(
        alibi(SLOPES, alignment),
        lambda b, h, q, k: SCORES[b, h, q, k] - float(SLOPES[b, h]) * abs(away(q, k)),
    )
    check(
        relative_bias(TABLE, alignment),
        lambda b, h, q, k: SCORES[b, h, q, k] + TABLE[h, max(-2, min(2, away(q, k))) + 2],
    )
    check(
        chain(softcap(2.0), alibi(HEADS, alignment)),
        lambda b, h, q, k: cap(SCORES[b, h, q, k]) - float(slopes[h]) * abs(away(q, k)),
    )
    check(chain(), lambda *i: SCORES[i])


def papers_slopes(n: int) -> list[float]:
    """As the code that was published with ALiBi has it (attention_with_linear_biases, get_slopes)."""

    def power_of_2(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return power_of_2(n)
    closest = 2 ** math.floor(math.log2(n))
    return power_of_2(closest) + papers_slopes(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 31, 32, 33, 40, 71, 128])
def test_slopes_are_the_papers(heads: int) -> None:
    got = alibi_slopes(heads)
    assert got.dtype == np.float32 and got.shape == (heads,)
    np.testing.assert_allclose(got, papers_slopes(heads), rtol=1e-6)


def test_slopes_of_eight_heads() -> None:
    """The paper's own example: 1/2, 1/4, ..., 1/256."""
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]


def test_bounds_and_caps_are_run_time_values() -> None:
    """One kernel for all of them."""
    for one, other in (
        (sliding_window(1, 2), sliding_window(300, 0)),
        (prefix_lm(1), prefix_lm(9)),
    ):
        assert trace(one).expression == trace(other).expression
        assert trace(one).values != trace(other).values
    assert trace(softcap(1), "score").expression == trace(softcap(50.5), "score").expression
    assert trace(sliding_window(1, None)).expression != trace(sliding_window(1, 0)).expression
    wide = np.zeros((HEADS, 9), np.float32)
    assert trace(relative_bias(TABLE), "score").expression == trace(relative_bias(wide), "score").expression


def test_causal_is_what_a_user_would_write() -> None:
    expression = trace(lambda b, h, q, k: q + (mods.key_len() - mods.query_len()) >= k).expression
    assert trace(causal()).expression == expression


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: causal("left"), "alignment is 'left'; one of 'bottom-right', 'top-left' is allowed"),
        (
            lambda: sliding_window(-1, 0),
            "window_left is -1; a whole number from 0 to 2.62 is allowed, or None",
        ),
        (lambda: sliding_window(0, -5), "window_right is -5; a whole number from 0"),
        (lambda: sliding_window(0, 1.5), "window_right is 1.5; a whole number"),
        (lambda: sliding_window(True, 0), "window_left is True; a whole number"),
        (lambda: sliding_window(2**62, 0), "window_left is 4611686018427387904; a whole number"),
        (lambda: prefix_lm(-1), "n is -1; a whole number of at least 0 is allowed"),
        (lambda: document([0, 1]), "document ids is of type list; an array of 1 or 2 dimensions is allowed"),
        (lambda: document(LAYOUT), "document ids is an array of 3 dimensions; an array of 1 or 2 dimensions"),
        (lambda: key_lengths(BATCHED), "lengths is an array of 2 dimensions; an array of 1 dimensions"),
        (lambda: block_sparse(IDS, 1, 1), "layout is an array of 1 dimensions; an array of 2 or 3 or 4 dim"),
        (lambda: block_sparse(LAYOUT, 0, 1), "block_q is 0; a whole number of at least 1"),
        (lambda: butterfly(4, 0), "block is 0; a whole number of at least 1"),
        (lambda: dilated(0), "step is 0; a whole number of at least 1"),
        (lambda: softcap(0), "softcap is 0; a finite number above 0 is allowed"),
        (lambda: softcap(-1.0), "softcap is -1.0; a finite number above 0"),
        (lambda: softcap(math.inf), "softcap is inf; a finite number above 0"),
        (lambda: softcap(math.nan), "softcap is nan; a finite number above 0"),
        (lambda: softcap("3"), "softcap is '3'; a finite number above 0"),
        (lambda: alibi(0), "heads is 0; a whole number of at least 1"),
        (lambda: alibi(LAYOUT), "slopes is an array of 3 dimensions; an array of 1 or 2 dimensions"),
        (lambda: relative_bias(TABLE[:, :4]), r"table.shape is \(3, 4\); \(Hq, 2 \* max \+ 1\) is allowed"),
    ],
)
def test_refused(make, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        make()
