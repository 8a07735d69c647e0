"""Classes of tiles: right for every element, and exact for the masks that matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashgen import mods
from flashgen.analysis.tile_classes import FULL, MIXED, SKIPPED, classify
from flashgen.evaluate import evaluate
from flashgen.expression import Array, Expression
from flashgen.notation import inputs, parse
from flashgen.trace import trace
from tests.expressions import INPUTS, expressions, values

IDS = np.array([0] * 5 + [1] * 3 + [2] * 8, np.int32)


def shown(mask: Expression, lengths: tuple[int, int], given_values, head=(1, 2)) -> np.ndarray:
    nq, nk = lengths
    at = {
        "b": head[0],
        "h": head[1],
        "q": np.arange(nq)[:, None],
        "k": np.arange(nk)[None, :],
        "Nq": nq,
        "Nk": nk,
    }
    return np.broadcast_to(evaluate(mask, at, given_values), lengths)


def each_tile(elements: np.ndarray, tiles: tuple[int, int]):
    """Row and column of a tile, and its elements."""
    (nq, nk), (br, bc) = elements.shape, tiles
    for i in range(-(-nq // br)):
        for j in range(-(-nk // bc)):
            yield (i, j), elements[i * br : (i + 1) * br, j * bc : (j + 1) * bc]


def sound(mask: Expression, lengths, tiles, given_values) -> None:
    """No visible element in a tile that is skipped, none hidden in a full one."""
    classes = classify(mask, lengths, tiles, given_values, (1, 2))
    for place, elements in each_tile(shown(mask, lengths, given_values), tiles):
        assert not (classes[place] == SKIPPED and elements.any()), (place, str(mask))
        assert not (classes[place] == FULL and not elements.all()), (place, str(mask))


SIZES = st.tuples(st.integers(0, 9), st.integers(0, 9))
TILES = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(expressions("bool", 5), SIZES, TILES, st.integers(0, 1000))
@example(parse("q // (k - 3) < 1"), (7, 7), (3, 3), 0)
@example(parse("q % (k - 3) != 0"), (7, 7), (3, 3), 0)
@example(parse("(q - 5) % -3 < -1 and (k - 4) // -2 <= 1"), (9, 9), (2, 3), 0)
@example(parse("not log(float(q) - 2) < x", INPUTS), (7, 7), (3, 3), 0)
@example(parse("1 / (q - k) != x", INPUTS), (7, 7), (3, 3), 0)
@example(parse("q * 9223372036854775807 <= k"), (7, 7), (2, 2), 0)
@example(parse("layout[q - 2, k]", INPUTS), (9, 9), (2, 2), 5)
@example(parse("where(layout[q, k], doc[q] < 2, bias[q, k] <= x)", INPUTS), (9, 9), (2, 2), 3)
def test_classes_are_sound(mask: Expression, lengths, tiles, seed: int) -> None:
    sound(mask, lengths, tiles, values(seed))


@given(st.lists(expressions("bool", 2), min_size=2, max_size=4), SIZES, TILES, st.integers(0, 1000))
def test_classes_of_conjunctions_are_sound(parts: list[Expression], lengths, tiles, seed: int) -> None:
    for op in ("and", "or"):
        e = parts[0]
        for part in parts[1:]:
            e = Expression(op, (e, part))
        sound(e, lengths, tiles, values(seed))
        sound(Expression("not", (e,)), lengths, tiles, values(seed))


def test_nan_in_a_captured_array() -> None:
    e = parse("not a[q] < a[k] or a[q] != a[k]", inputs("a:float32[1]"))
    sound(e, (6, 6), (2, 2), {"a": np.array([1, 2, np.nan, 3, np.inf, -np.inf], np.float32)})


EXACT = {
    "causal": mods.causal(),
    "top-left": mods.causal("top-left"),
    "window": mods.sliding_window(3, 1),
    "open window": mods.sliding_window(None, 2),
    "prefix": mods.prefix_lm(5),
    "window and causal": mods.and_masks(mods.causal(), mods.sliding_window(4, 4)),
    "not causal": mods.not_mask(mods.causal()),
    "block-sparse": mods.block_sparse(np.random.default_rng(0).random((8, 8)) < 0.5, 2, 2),
    "heads": lambda b, h, q, k: k <= q + h - b,
    "lengths": mods.key_lengths(np.array([3, 7])),
    "distance": lambda b, h, q, k: abs(q - k) <= 3,
}


@pytest.mark.parametrize("lengths", [(16, 16), (7, 16), (16, 5), (1, 1), (0, 4), (4, 0)])
@pytest.mark.parametrize("mask", EXACT.values(), ids=EXACT)
def test_classes_of_what_is_affine_are_exact(mask, lengths) -> None:
    """Mixed is said of no tile that is not. (Of `and`, where a tile is cut by two: that is allowed.)"""
    traced = trace(mask)
    classes = classify(traced.expression, lengths, (2, 2), traced.values, (1, 2))
    assert classes.shape == tuple(-(-n // 2) for n in lengths)
    for place, elements in each_tile(shown(traced.expression, lengths, traced.values), (2, 2)):
        want = FULL if elements.all() else MIXED if elements.any() else SKIPPED
        assert classes[place] == want, place


def test_documents() -> None:
    """A tile of one document and another are skipped; what holds an edge is mixed."""
    traced = trace(mods.document(IDS))
    classes = classify(traced.expression, (16, 16), (4, 4), traced.values)
    assert classes.tolist() == [
        [FULL, MIXED, SKIPPED, SKIPPED],
        [MIXED, MIXED, SKIPPED, SKIPPED],
        [SKIPPED, SKIPPED, FULL, FULL],
        [SKIPPED, SKIPPED, FULL, FULL],
    ]


def test_a_box_that_reaches_beyond_an_array_holds_a_0() -> None:
    e = Expression("element", (Expression("position", value="q"),), Array("a", 1, "bool"))
    classes = classify(e, (6, 1), (2, 1), {"a": np.ones(3, bool)})
    assert classes[:, 0].tolist() == [FULL, MIXED, SKIPPED]
