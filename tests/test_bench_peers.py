"""Libraries that flashgen bench compares with: each that is installed is right on cases of every kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashgen.bench.cases import parse_shape
from flashgen.bench.measure import expect
from flashgen.bench.memory import small
from flashgen.bench.peers import PEERS, choose_peers
from flashgen.bench.peers.base import masked, top_left, visible
from flashgen.bench.prepare import make_arrays, prepare
from flashgen.bench.tasks import FAILED, RIGHT, WRONG, Row
from flashgen.errors import InvalidArgument


def test_peers_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEERS["torch"], "version", lambda: None)
    present, absent = choose_peers("all")
    assert "torch" in absent
    assert "numpy" in present
    assert choose_peers("none") == ([], [])
    with pytest.raises(InvalidArgument, match=r"torch is not installed: pip install 'flashgen\[bench\]'"):
        choose_peers("numpy,torch")


@pytest.mark.parametrize("key", PEERS)
def test_peer_is_right(key: str) -> None:
    """Each library that is installed, on cases of every kind; flex compiles too long for a test."""
    if PEERS[key].version() is None or key == "flex":
        pytest.skip(f"{key} is not installed, or compiles for a while")
    peer = PEERS[key](1)
    texts = ("1,2,2,16,16,8", "1,4,2,16,16,8,causal", "2,4,2,1,40,8", "1,4,2,1,40,8,causal")
    for text in (*texts, "1,4,2,3,16,8,causal", "2,2,2,5,16,8,causal"):
        case = parse_shape(text)
        arrays = make_arrays(case)
        expected = expect(case.problem, *arrays, case.head_dim**-0.5)
        row, _ = prepare(peer, case, arrays, expected, Row(case.name, 1, key, case.work))
        assert row.state == RIGHT, row
        assert not any(fate.startswith((WRONG, FAILED)) for fate in row.forms.values()), row.forms
        if masked(case) and not top_left(case):
            assert row.forms.keys() >= FORMS_OF_SHORT_QUERIES.get(key, set())


FORMS_OF_SHORT_QUERIES = {"torch": {"causal_lower_right", "mask"}, "onnxruntime": {"Attention, mask"}}


@pytest.mark.skipif(PEERS["onnxruntime"].version() is None, reason="onnxruntime is not installed")
def test_queries_behind_a_cache() -> None:
    """GroupQueryAttention has the keys before the queries in a cache: that is the mask of short queries."""
    q, k, v = make_arrays(case := parse_shape("1,4,2,3,16,8,causal"))
    peer = PEERS["onnxruntime"](1)
    forms = peer.forms(case, q, k, v)
    prepared = forms["GroupQueryAttention"]()
    o = prepared.read(prepared.call())
    expected = expect(case.problem, q, k, v, case.head_dim**-0.5)
    assert expected.deviation_of_o(o).share <= 1
    assert "GroupQueryAttention" not in peer.forms(replace(case, batch=2), q, k, v)


def test_a_mask_for_short_queries() -> None:
    """Aligned bottom-right, and needed for more than one row only."""
    case = parse_shape("1,2,1,2,4,8,causal")
    assert masked(case) and not top_left(case)
    seen = [[True, True, True, False], [True] * 4]
    assert visible(case).tolist() == seen
    assert visible(case, 2).tolist() == seen * 2
    one = parse_shape("1,2,1,1,4,8,causal")
    assert not masked(one) and top_left(one)
    assert top_left(parse_shape("1,2,1,4,4,8,causal"))


@pytest.mark.parametrize(
    "text", ["1,2,1,256,256,8,causal", "1,2,1,256,2048,8,causal", "1,2,1,60,64,8,causal"]
)
@pytest.mark.parametrize("queries", [None, 1])
def test_the_small_call_before_has_the_same_forms(text: str, queries: int | None) -> None:
    """Forms are asked for by their number, and depend on where a mask is aligned."""
    case = parse_shape(text)
    case = replace(case, nq=queries or case.nq)
    before = small(case)
    assert max(before.nq, before.nk) <= 64
    assert (masked(before), top_left(before)) == (masked(case), top_left(case))
