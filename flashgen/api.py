"""flashgen from Python: emit a kernel, compile one, or just compute attention."""

from __future__ import annotations

import functools
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from flashgen.errors import InvalidArgument, check_choice
from flashgen.problem import CAUSAL, Problem
from flashgen.schedule import FA2, Schedule
from flashgen.targets import TARGETS, find
from flashgen.targets.base import KEY_STEPS, QUERY_STEPS, ROW_STEPS, Target

if TYPE_CHECKING:
    from flashgen.runtime.cpu import CpuKernel


def emit(problem: Problem, schedule: Schedule | None = None, target: str | Target = "avx2") -> str:
    """The source of a kernel: one file of C++ or CUDA that needs its compiler's own headers and no more.

    schedule: FA2 if not given; the target decides what it leaves open.
    target: one of flashgen.targets.TARGETS, or its name. It need not run on this machine.

    Raises InvalidArgument, or TargetLimit where the tiles do not fit.
    """
    from flashgen import emission

    return emission.emit(*_variant(problem, schedule, target)).source


def compile(
    problem: Problem, schedule: Schedule | None = None, target: str | Target | None = None
) -> CpuKernel | Any:
    """A kernel that can be called: ``o, lse = kernel(q, k, v)``; see CpuKernel.__call__, or for the target
    "cuda" CudaKernel.__call__, which takes CuPy arrays beside NumPy's.

    target: if not given, the widest vectors that this machine has.

    The same arguments give the same kernel; another process finds it compiled in the user's cache folder
    ($FLASHGEN_CACHE_DIR). Raises what ``emit`` raises, MissingTool (no compiler; a processor or device
    that is not here) or CompileFailure.
    """
    return _compile(*_variant(problem, schedule, _best_target() if target is None else target))


def attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    is_causal: bool = False,
    causal_alignment: str = "bottom-right",
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    schedule: Schedule | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """softmax(scale * Q K^T, masked) V: O, or (O, lse).

    q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv), NumPy arrays of one type, which is float32,
        float16, ml_dtypes' bfloat16 or float64; any strides. Any of B, Hq, Nq, Nk and Dv may be 0. O is (B,
        Hq, Nq, Dv) of the same type, lse (B, Hq, Nq) of the type computed in: float64 for float64, else
        float32. (CuPy's arrays go to a kernel that ``compile`` makes for "cuda".)
    is_causal: a row sees no key after its own position.
    causal_alignment: where that is. "bottom-right": row i is at key i + Nk - Nq, so that the last row sees
        every key, which is what decoding with a key cache wants. "top-left": row i is at key i, which is
        what PyTorch's scaled_dot_product_attention does. Both are the same where Nq == Nk.
    scale: of the scores, 1 / sqrt(D) if not given. 0, or of size 2^-126 to 2.35e38, with float64 2^-1022 to
        1.24e308: kernels multiply it by log2 e in the type computed in.
    enable_gqa: allow Hq to be a multiple of Hkv; query head h then reads key head h // (Hq / Hkv).
    return_lse: return also each row's logsumexp of its visible scores (natural logarithm; -inf, with
        O = 0, where a row sees no key).
    schedule, target: as in ``compile``; what the schedule leaves open suits the lengths.
    threads: of a CPU, at most so many, from 1 to 1024; if not given, what the work is worth, up to
        $OMP_NUM_THREADS or the processors that this process may run on.

    The kernel is compiled at the first call of its kind (one to two seconds) and cached. Raises what
    ``compile`` raises, InvalidArgument and KernelFailure.
    """
    from flashgen.runtime.tensors import expect_array, storage_type

    if type(is_causal) is not bool:
        is_causal = _expect_flag(
            "is_causal", is_causal, "; causal_alignment takes 'bottom-right' or 'top-left'"
        )
    if type(enable_gqa) is not bool:
        enable_gqa = _expect_flag("enable_gqa", enable_gqa)
    if type(return_lse) is not bool:
        return_lse = _expect_flag("return_lse", return_lse)
    _check_variant(causal_alignment, schedule, target)
    q = expect_array("q", q)
    dtype = storage_type(q.dtype)
    assert dtype is not None, "expect_array has looked"
    k, v = expect_array("k", k, dtype), expect_array("v", v, dtype)
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 4:
            raise InvalidArgument(f"{name}.shape", array.shape, "four dimensions are allowed: (B, H, N, D)")
    if not enable_gqa and q.shape[1] != k.shape[1]:
        raise InvalidArgument(
            "q.shape", q.shape, f"{k.shape[1]} heads as k has are allowed, or a multiple with enable_gqa=True"
        )
    head_dim, head_dim_v = q.shape[3], v.shape[3]
    if drop := head_dim_v == 0:
        # A kernel has at least one column of values; lse is the same for any.
        v, head_dim_v = np.broadcast_to(np.zeros((), v.dtype), (*v.shape[:3], 1)), 1
    rows = q.shape[2] * (q.shape[1] // (k.shape[1] or 1))
    steps = (
        bisect_left(QUERY_STEPS, q.shape[2]),
        bisect_left(KEY_STEPS, k.shape[2]),
        bisect_left(ROW_STEPS, rows),
    )
    kernel = _kernel(head_dim, head_dim_v, dtype, is_causal, causal_alignment, schedule, target, *steps)
    o, lse = kernel(q, k, v, scale=scale, **_cpu_options(kernel, threads))
    if drop:
        o = o[..., :0]
    return (o, lse) if return_lse else o


def _expect_flag(name: str, value: object, hint: str = "") -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidArgument(name, repr(value), f"one of True, False is allowed{hint}")


def _check_variant(causal_alignment: object, schedule: object, target: object) -> None:
    """Refuse what is of a wrong type before it is looked up: a cache can hold only what can be hashed."""
    if not isinstance(causal_alignment, str):
        check_choice("causal_alignment", causal_alignment, CAUSAL)
    if schedule is not None:
        _check_schedule(schedule)
    if target is not None and not isinstance(target, (str, Target)):
        check_choice("target", target, TARGETS)


def _check_schedule(schedule: object) -> None:
    if not isinstance(schedule, Schedule):
        raise InvalidArgument("schedule", repr(schedule), "a flashgen.Schedule is allowed")


def _cpu_options(kernel: Any, threads: int | None) -> dict[str, int]:
    """What only a kernel of a CPU can be told; a GPU's grid follows from the sizes."""
    if threads is None:
        return {}
    from flashgen.runtime.cpu import CpuKernel

    if not isinstance(kernel, CpuKernel):
        raise InvalidArgument("threads", threads, "target cuda takes none: leave it out")
    return {"threads": threads}


@functools.cache
def _kernel(
    head_dim: int,
    head_dim_v: int,
    dtype: str,
    is_causal: bool,
    causal_alignment: str,
    schedule: Schedule | None,
    target: str | Target | None,
    query_step: int,
    key_step: int,
    row_step: int,
) -> Any:
    """The kernel for a call whose lengths, and a group's rows, lie at these steps."""
    check_choice("causal_alignment", causal_alignment, CAUSAL)
    causal = causal_alignment if is_causal else None
    problem = Problem(head_dim, head_dim_v, dtype, causal)
    problem, schedule, target = _variant(problem, schedule, _best_target() if target is None else target)
    query_len = (*QUERY_STEPS, QUERY_STEPS[-1] + 1)[query_step]
    key_len = (*KEY_STEPS, KEY_STEPS[-1] + 1)[key_step]
    rows = (*ROW_STEPS, ROW_STEPS[-1] + 1)[row_step]
    return _compile(problem, target.suit(problem, schedule, query_len, key_len, rows), target)


def _best_target() -> Target:
    """The target with the widest vectors that this machine has."""
    from flashgen.runtime.cpu_features import best_target

    return best_target()


@functools.cache
def _compile(problem: Problem, schedule: Schedule, target: Target) -> Any:
    from flashgen import emission, runtime

    emitted = emission.emit(problem, schedule, target)
    return runtime.load(emitted.source, emitted.name, problem, target, emitted.launch)


def _variant(
    problem: Problem, schedule: Schedule | None, target: str | Target
) -> tuple[Problem, Schedule, Target]:
    """What says which kernel is meant, checked and with nothing left to a default."""
    if not isinstance(problem, Problem):
        raise InvalidArgument("problem", repr(problem), "a flashgen.Problem is allowed")
    schedule = FA2 if schedule is None else schedule
    _check_schedule(schedule)
    return problem, schedule, target if isinstance(target, Target) else find(target)
