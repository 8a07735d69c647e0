"""flashgen.attention, compile and emit, with the sample kernel in the place of emission."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

import flashgen
from flashgen import FA1, FA2, Problem, Schedule, api, variants
from flashgen.emission import Emitted, variant
from flashgen.errors import InvalidArgument, MissingTool
from flashgen.expression import Expression
from flashgen.runtime import cpu_features
from flashgen.runtime.tensors import Layout
from flashgen.targets.cpu import Avx2, Avx512
from tests.sample_kernel import attention_expected, attention_source, skip_unless_it_runs


@pytest.fixture(autouse=True)
def emitted(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """What was emitted, in order: problem, schedule, target's name."""
    skip_unless_it_runs(Avx2())
    calls: list[tuple[Problem, Schedule, str]] = []

    def emit(problem: Problem, schedule: Schedule, target: Avx2) -> Emitted:
        schedule = target.complete(problem, schedule)
        calls.append((problem, schedule, target.name))
        name = variant(problem, schedule, target)
        return Emitted(name, schedule, attention_source(name, problem), None)

    monkeypatch.setattr("flashgen.emission.emit", emit)
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "api-cache"))
    caches = (variants.compiled, variants.at_steps, api._plan)
    for cache in caches:
        cache.cache_clear()
    yield calls
    for cache in caches:
        cache.cache_clear()


def arrays(b: int = 2, hq: int = 2, hkv: int = 2, nq: int = 3, nk: int = 5, d: int = 4, dv: int = 4):
    rng = np.random.default_rng(0)
    shapes = ((b, hq, nq, d), (b, hkv, nk, d), (b, hkv, nk, dv))
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def check(result, q, k, v, scale: float = 0.5, causal: str | None = None) -> None:
    for array, expected in zip(result, attention_expected(q, k, v, scale, causal), strict=True):
        np.testing.assert_array_max_ulp(array, expected.astype(np.float32), 1)


def test_attention() -> None:
    q, k, v = arrays(dv=3)
    result = flashgen.attention(q, k, v, return_lse=True)
    check(result, q, k, v)
    assert np.array_equal(flashgen.attention(q, k, v), result[0])
    check(flashgen.attention(q, k, v, scale=-1.5, return_lse=True), q, k, v, -1.5)


def test_causal_alignment() -> None:
    q, k, v = arrays()
    options = {"is_causal": True, "return_lse": True}
    check(flashgen.attention(q, k, v, **options), q, k, v, causal="bottom-right")
    check(flashgen.attention(q, k, v, causal_alignment="top-left", **options), q, k, v, causal="top-left")
    square = arrays(nq=5)
    bottom_right, top_left = (
        flashgen.attention(*square, is_causal=True, causal_alignment=alignment)
        for alignment in ("bottom-right", "top-left")
    )
    assert np.array_equal(bottom_right, top_left)


def test_gqa_is_asked_for() -> None:
    q, k, v = arrays(hq=6)
    check(flashgen.attention(q, k, v, enable_gqa=True, return_lse=True), q, k, v)
    with pytest.raises(
        InvalidArgument, match=r"2 heads as k has are allowed, or a multiple with enable_gqa=True"
    ):
        flashgen.attention(q, k, v)
    with pytest.raises(InvalidArgument, match=r"heads that are a multiple of k's 2"):
        flashgen.attention(q[:, :5], k, v, enable_gqa=True)


@pytest.mark.parametrize("zero", ["b", "hq", "nq", "nk", "dv", "heads"])
def test_zero_sizes(zero: str) -> None:
    q, k, v = arrays(**({"hq": 0, "hkv": 0} if zero == "heads" else {zero: 0}))
    o, lse = flashgen.attention(q, k, v, enable_gqa=True, return_lse=True)
    assert o.shape == (*q.shape[:3], v.shape[3])
    check((o, lse), q, k, v)


REFUSED = [
    ({"q": [[1.0]]}, "q is of type list"),
    ({"v": np.zeros((5, 4), np.float32)}, "v.shape is (5, 4); four dimensions are allowed: (B, H, N, D)"),
    ({"k": np.zeros((2, 2, 5, 4))}, "k.dtype is '<f8'; native float32 is allowed"),
    ({"q": np.zeros((2, 2, 3, 0), np.float32)}, "head_dim is 0; a whole number of at least 1"),
    ({"k": np.zeros((2, 2, 5, 3), np.float32)}, "k.shape is (2, 2, 5, 3); (2, 2, 5, 4) is allowed"),
    ({"causal_alignment": "middle"}, "causal_alignment is 'middle'; one of 'bottom-right', 'top-left'"),
    ({"causal_alignment": None}, "causal_alignment is None; one of"),
    ({"is_causal": "no"}, "is_causal is 'no'; one of True, False"),
    (
        {"is_causal": "top-left"},
        "is_causal is 'top-left'; one of True, False is allowed; causal_alignment takes 'bottom-right' or",
    ),
    ({"is_causal": []}, "is_causal is []; one of True, False is allowed"),
    ({"is_causal": np.array(True)}, "is_causal is array(True); one of True, False is allowed"),
    ({"is_causal": 1}, "is_causal is 1; one of True, False is allowed"),
    ({"enable_gqa": "no"}, "enable_gqa is 'no'; one of True, False is allowed"),
    ({"return_lse": "no"}, "return_lse is 'no'; one of True, False is allowed"),
    ({"causal_alignment": []}, "causal_alignment is []; one of 'bottom-right', 'top-left'"),
    ({"schedule": []}, "schedule is []; a flashgen.Schedule is allowed"),
    ({"target": []}, "target is []; one of 'avx2', 'avx512', 'avx512bf16', 'cuda' is allowed"),
    ({"target": np.zeros(2)}, "target is array([0., 0.]); one of 'avx2', 'avx512', 'avx512bf16', 'cuda' is"),
    ({"scale": np.nan}, "scale is nan"),
    ({"threads": 0}, "threads is 0"),
    ({"target": "sse"}, "target is 'sse'; one of 'avx2', 'avx512', 'avx512bf16', 'cuda' is allowed"),
    ({"schedule": "FA2"}, "schedule is 'FA2'; a flashgen.Schedule is allowed"),
    ({"schedule": Schedule(panel=7)}, "panel is 7; target avx2 packs panels of 16 columns, or with 0 none"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_refused(change: dict, message: str) -> None:
    q, k, v = arrays()
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        flashgen.attention(**{"q": q, "k": k, "v": v, "target": "avx2"} | change)


def test_numpy_bools_are_bools() -> None:
    q, k, v = arrays()
    options = {"is_causal": np.True_, "return_lse": np.True_, "enable_gqa": np.False_}
    check(flashgen.attention(q, k, v, **options), q, k, v, causal="bottom-right")


FIELDS = [
    (Schedule, {"lazy_rescale": 1}, "lazy_rescale is 1; one of True, False is allowed"),
    (Schedule, {"causal_skip": 0.0}, "causal_skip is 0.0; one of True, False is allowed"),
    (Schedule, {"panel": False}, "panel is False; a whole number of at least 0 is allowed"),
    (Schedule, {"panel": 0.0}, "panel is 0.0; a whole number of at least 0 is allowed"),
    (Schedule, {"panel": -1}, "panel is -1; a whole number of at least 0 is allowed"),
    (Schedule, {"order": []}, "order is []; one of 'kv-outer', 'q-outer' is allowed"),
    *[
        (
            Problem,
            {"head_dim": 64, "head_dim_v": value},
            f"head_dim_v is {value}; a whole number of at least 1",
        )
        for value in (0, 0.0, False)
    ],
]


@pytest.mark.parametrize(("kind", "fields", "message"), FIELDS, ids=[message[:30] for *_, message in FIELDS])
def test_fields_refused(kind: type, fields: dict, message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        kind(**fields)


@pytest.mark.parametrize(
    ("x", "dtype"),
    [(2.0**128, "float32"), (-(2.0**128), "bfloat16"), (2.0**-151, "float32"), (1e-50, "float16")],
)
def test_constants_are_held_by_what_is_computed_in(x: float, dtype: str) -> None:
    def score(x: float) -> Expression:
        return Expression("mul", (Expression("score"), Expression("constant", value=x)))

    with pytest.raises(InvalidArgument, match=re.escape(f"a constant is {x}; a number that float32 holds")):
        Problem(4, dtype=dtype, score=score(x))
    assert Problem(4, dtype="float64", score=score(x))
    for right in (0.0, -math.inf, 2.0**-149, -3.4028234663852886e38):
        assert Problem(4, dtype=dtype, score=score(right))


def test_value_dim_is_head_dim_unless_given() -> None:
    assert Problem(64) == Problem(64, None) == Problem(64, 64) != Problem(64, 32)
    assert replace(Problem(64), causal="top-left").head_dim_v == 64


def test_problem_must_be_one() -> None:
    with pytest.raises(InvalidArgument, match=r"problem is 64; a flashgen\.Problem is allowed"):
        flashgen.compile(64)  # pyright: ignore[reportArgumentType]


def test_threads_are_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = arrays()
    check(flashgen.attention(q, k, v, threads=2, return_lse=True), q, k, v)
    told: list[Any] = []

    class Gpu:
        def run(self, layout: Layout, *arguments: Any) -> tuple[str, str]:
            told.append(arguments[-1])
            return "o", "lse"

    monkeypatch.setattr(api, "suited", lambda *variant: Gpu())
    assert flashgen.attention(q, k, v, target="cuda", threads=2, return_lse=True) == ("o", "lse")
    assert told == [2]  # a CUDA kernel refuses it: tests/test_runtime_cuda.py


def test_kernels_are_kept(emitted: list) -> None:
    q, k, v = arrays()
    for _ in range(3):
        flashgen.attention(q, k, v, target="avx2")
        flashgen.attention(q, k, v, is_causal=True, target="avx2", schedule=FA1)
    assert len(emitted) == 2
    kernel = flashgen.compile(Problem(4), target="avx2")
    assert flashgen.compile(Problem(4, 4), FA2, Avx2()) is not None
    assert flashgen.compile(Problem(4, 4), Schedule(), "avx2") is kernel
    assert [(problem.causal, schedule.order) for problem, schedule, _ in emitted[:2]] == [
        (None, "q-outer"),
        ("bottom-right", "kv-outer"),
    ]
    assert len(emitted) == 3  # a target's object of one's own is no other target


def test_tiles_suit_the_lengths(emitted: list) -> None:
    """Few kernels serve all lengths: small tiles for short calls; what a schedule states stays."""
    lengths = (1, 5), (16, 64), (13, 64), (17, 64), (32, 65), (33, 65), (70, 80), (96, 129), (97, 257)
    for query_len, key_len in lengths:
        q, k, v = (np.ones((1, 1, n, 4), np.float32) for n in (query_len, key_len, key_len))
        flashgen.attention(q, k, v, target="avx2")
    tiles = [(schedule.br, schedule.bc, schedule.panel) for _, schedule, _ in emitted]
    small = [(1, 64, 0), (16, 64, 0), (32, 64, 16), (32, 128, 16)]
    assert tiles == [*small, (64, 128, 16), (64, 256, 16), (64, 512, 16)]
    for query_len, key_len in (1024, 4097), (1025, 4096), (1025, 4097):
        schedule = Avx2().suit(Problem(4), Schedule(), query_len, key_len, query_len)
        assert schedule.br == (128 if query_len > 1024 and key_len > 4096 else None)
    for stated in (Schedule(panel=0), Schedule(order="kv-outer"), Schedule(br=40)):
        assert Avx2().suit(Problem(4), stated, 1025, 4097, 1025) == stated
    flashgen.attention(q[:, :, :1], k, v, target="avx2", schedule=Schedule(br=18))
    assert emitted[-1][1].br == 18


def test_few_rows_of_a_group_are_one_tile(emitted: list) -> None:
    """Up to 16, counted over its heads; what a schedule states of it stays."""

    def asked(hq: int, nq: int, **stated: Any) -> tuple[Any, ...]:
        q, k, v = (np.ones((1, h, n, 4), np.float32) for h, n in ((hq, nq), (2, 80), (2, 80)))
        flashgen.attention(q, k, v, target="avx2", enable_gqa=True, schedule=Schedule(**stated))
        schedule = emitted[-1][1]
        return schedule.br, schedule.panel, schedule.group_rows

    assert asked(8, 1) == (4, 0, True)
    assert asked(8, 4) == (16, 0, True)
    assert asked(10, 4) == (16, 16, False)
    assert asked(8, 1, bc=40, panel=16) == (16, 16, False)
    assert asked(8, 1, bc=40, group_rows=False) == (16, 16, False)
    assert asked(8, 1, bc=40, panel=0) == (4, 0, True)
    assert asked(0, 3) == (1, 0, True)


def test_emit() -> None:
    """The target fills what the schedule leaves open; it need not be one that runs here."""
    problem = Problem(8, causal="top-left")
    filled = Avx512().complete(problem, replace(FA2, br=14))
    assert f"{problem.name}_{filled.name}_avx512(" in flashgen.emit(problem, replace(FA2, br=14), Avx512())
    filled = Avx2().complete(problem, FA2)
    assert f"{problem.name}_{filled.name}_avx2(" in flashgen.emit(problem)


def test_default_target_is_the_widest(emitted: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "cpu_features", lambda: frozenset(Avx2.features))
    flashgen.compile(Problem(4))
    assert emitted[-1][2] == "avx2"
    monkeypatch.setattr(cpu_features, "cpu_features", frozenset)
    with pytest.raises(MissingTool, match="cannot run target avx2"):
        flashgen.attention(*arrays(d=5))


def test_cached_call_does_little() -> None:
    """A cached call takes less than 10 microseconds beside the kernel, as long as it makes so few calls."""
    q, k, v = arrays()
    flashgen.attention(q, k, v, is_causal=True)
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    flashgen.attention(q, k, v, is_causal=True)
    sys.setprofile(None)
    assert 10 < calls < 50, calls


def test_import_is_cheap() -> None:
    code = (
        "import sys, flashgen\n"
        "print(*[m for m in ('numpy', 'xdsl', 'jinja2', 'filelock', 'subprocess') if m in sys.modules])\n"
        "from flashgen import *\n"
        "print(attention.__module__, emit.__module__, compile.__module__, Problem(8).head_dim, FA1.order)\n"
        "print(FA2 == Schedule(), errors.__name__, set(flashgen.__all__) <= set(dir(flashgen)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "",
        "flashgen.api flashgen.api flashgen.api 8 kv-outer",
        "True flashgen.errors True",
    ]


def test_version() -> None:
    assert flashgen.__version__ == version("flashgen")  # pyright: ignore[reportAttributeAccessIssue]


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'flashgen' has no attribute 'sdpa'"):
        flashgen.sdpa  # noqa: B018


def test_targets_of_a_kind_are_one(emitted: list) -> None:
    """A target that is made anew for each call has nothing emitted again."""
    assert Avx2() == Avx2() != Avx512()
    q, k, v = arrays()
    for _ in range(3):
        flashgen.attention(q, k, v, target=Avx2())
    assert len(emitted) == 1
