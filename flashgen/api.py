"""flashgen from Python: emit a kernel, compile one, or just compute attention."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from flashgen.errors import InvalidArgument, check_choice
from flashgen.options import NO_EXTRA, Mods, find_extra
from flashgen.problem import CAUSAL, DTYPES, Problem, computed
from flashgen.runtime.arrays import View, check_type, kind_of, look, look_to_write, turned
from flashgen.runtime.tensors import (
    AXES,
    BHND,
    Form,
    Layout,
    address,
    check_rank,
    in_order,
    lay_out,
)
from flashgen.schedule import FA2, Schedule
from flashgen.targets import TARGETS, find
from flashgen.targets.base import KEY_STEPS, QUERY_STEPS, ROW_STEPS, Target

if TYPE_CHECKING:
    from flashgen.runtime.cpu import CpuKernel

# A decoding loop has a new Nk, and so new forms, at every step.
LAYOUTS = 256
ZEROS = np.zeros(1, np.uint64)
"""The element of any type that is 0."""


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
    q: Any,
    k: Any,
    v: Any,
    *,
    attn_mask: Any = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom-right",
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    alibi: Any = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    layout: str = "BHND",
    out: Any = None,
    lse: Any = None,
    return_lse: bool = False,
    schedule: Schedule | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
) -> Any:
    """softmax(score(scale * Q K^T), masked) V: O, or (O, lse).

    q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv), of one type, which is float32, float16,
        bfloat16 or float64; any strides; arithmetic is float64 with the last of these, else float32. Any of
        B, Hq, Nq, Nk and Dv may be 0. Arrays of NumPy, PyTorch or JAX, or of whatever speaks DLPack or the
        buffer protocol, in the processor's memory; or CuPy's, with target "cuda". Nothing is copied, but an
        array whose elements do not lie at multiples of their size. There is no backward pass: a tensor that
        requires grad is refused while gradients are on.
    attn_mask: an array that broadcasts to (B, Hq, Nq, Nk) by NumPy's rules, never expanded: of bool, True
        where a row sees a key, or of floats, which are added to the scores; -inf hides a key whose score is
        not NaN.
    is_causal: a row sees no key after its own position.
    causal_alignment: where that is, for ``window`` and ``alibi``, too. "bottom-right": row i is at key i +
        Nk - Nq, so that the last row sees every key, which is what decoding with a key cache wants.
        "top-left": row i is at key i, which is what PyTorch's scaled_dot_product_attention does. Both are the
        same where Nq == Nk.
    window: (left, right): a row sees so many keys before its position, and behind it, and the key there; None
        for one of them: all.
    softcap: c > 0: scores become c * tanh(score / c), before anything else is done to them.
    alibi: True, or (Hq,) slopes: a score loses its head's slope times its distance from the row's position.
    score_mod, mask_mod: Python functions in FlexAttention's convention: score_mod(score, b, h, q_idx, k_idx)
        gives what takes the place of a score, mask_mod(b, h, q_idx, k_idx) says whether a row sees a key.
    sinks: (Hq,), of the type computed in: a logit of each head that takes part in the sums of its rows, and
        to which no value belongs.
    scale: of the scores, 1 / sqrt(D) if not given. 0, or of size 2^-126 to 2.35e38, with float64 2^-1022 to
        1.24e308: kernels multiply it by log2 e in the type computed in.
    enable_gqa: allow Hq to be a multiple of Hkv; query head h then reads key head h // (Hq / Hkv).
    layout: "BNHD" where q, k, v and O are (B, N, H, D). The mask and lse are as they are with "BHND".
    out, lse: for O, and for (B, Hq, Nq) logsumexps of the type computed in: written and returned, the very
        objects. They may be of any library, and apart in memory from all else.
    return_lse: return also each row's logsumexp of its visible scores (natural logarithm; -inf, with
        O = 0, where a row sees no key), as is done where ``lse`` is given.
    schedule, target: as in ``compile``; what the schedule leaves open suits the lengths.
    threads: of a CPU, at most so many, from 1 to 1024; if not given, what the work is worth, up to
        $OMP_NUM_THREADS or the processors that this process may run on.

    Results are of the library of q, whatever that of k and v: tensors, JAX arrays, CuPy arrays, or else NumPy
    arrays. The kernel is compiled at the first call of its kind (one to two seconds) and cached. Raises what
    ``compile`` raises, InvalidArgument, before anything is written, and KernelFailure.
    """
    if type(is_causal) is not bool:
        is_causal = _expect_flag(
            "is_causal", is_causal, "; causal_alignment takes 'bottom-right' or 'top-left'"
        )
    if type(enable_gqa) is not bool:
        enable_gqa = _expect_flag("enable_gqa", enable_gqa)
    if type(return_lse) is not bool:
        return_lse = _expect_flag("return_lse", return_lse)
    positions = is_causal or window is not None or alibi is not None
    causal = _expect_causal(is_causal, causal_alignment, positions)
    _check_variant(schedule, target)
    see = look
    if target is not None or type(q) is not np.ndarray:
        see, target = _look_for(q, target)
    query, key, value = see("q", q), see("k", k), see("v", v)
    dtype = query.dtype
    if dtype not in DTYPES or not dtype == key.dtype == value.dtype:
        _check_types(query, key, value)
    o = None if out is None else look_to_write("out", see("out", out), dtype)
    row_lse = None if lse is None else look_to_write("lse", see("lse", lse), computed(dtype))
    if layout != BHND:
        query, key, value, o = _turn(layout, query, key, value, o)
    no_values = value.shape[-1:] == (0,)
    if no_values:
        value, o = _one_column(query, value, o, layout)
    extra = NO_EXTRA
    if not (attn_mask is window is softcap is alibi is score_mod is mask_mod is sinks is None):
        extra = find_extra(
            see,
            query,
            key,
            is_causal=is_causal,
            causal_alignment=causal_alignment,
            window=window,
            softcap=softcap,
            alibi=alibi,
            score_mod=score_mod,
            mask_mod=mask_mod,
            attn_mask=attn_mask,
            sinks=sinks,
        )
    kernel, laid_out = _plan(
        query.shape,
        query.strides,
        key.shape,
        key.strides,
        value.shape,
        value.strides,
        None if o is None else Form(o.shape, o.strides),
        None if row_lse is None else Form(row_lse.shape, row_lse.strides),
        dtype,
        causal,
        extra.mods,
        layout,
        enable_gqa,
        schedule,
        target,
    )
    made, made_lse = kernel.run(
        laid_out, query, key, value, o, row_lse, extra.arrays, extra.numbers, scale, threads
    )
    if no_values:
        made = made[..., :0]
    result = made if out is None else out
    if lse is not None:
        return result, lse
    return (result, made_lse) if return_lse else result


def _look_for(
    q: object, target: str | Target | None
) -> tuple[Callable[[str, object], View], str | Target | None]:
    """How arrays of a call are looked at, and its target: CuPy's arrays are for a GPU."""
    from flashgen.runtime.cuda_arrays import CUPY, look_anywhere

    if target is None and kind_of(type(q)) is CUPY:
        target = "cuda"
    language = find(target).language if isinstance(target, str) else target and target.language
    return look_anywhere if language == "cuda" else look, target


def _check_types(q: View, k: View, v: View) -> None:
    """Raise InvalidArgument unless all have one type that is stored."""
    dtype = q.dtype if q.dtype in DTYPES else None
    check_type("q", q, dtype, " or ".join(DTYPES))
    check_type("k", k, dtype)
    check_type("v", v, dtype)


def _turn(order: str, *views: View | None) -> list[Any]:
    """Views of (B, N, H, D) as such of (B, H, N, D). Raises InvalidArgument."""
    check_choice("layout", order, AXES)
    for name, view in zip(("q", "k", "v", "out"), views, strict=True):
        if view is not None:
            check_rank(name, view.shape, order)
    return [None if view is None else turned(view, order) for view in views]


def _one_column(q: View, v: View, out: View | None, order: str) -> tuple[View, None]:
    """For values of no column: one of zeros, as a kernel has at least one; lse is the same for any.

    Raises InvalidArgument, for an output that is not of no column, too.
    """
    check_rank("q", in_order(q.shape, order) if len(q.shape) == 4 else q.shape, order)
    check_rank("v", in_order(v.shape, order) if len(v.shape) == 4 else v.shape, order)
    right = (*q.shape[:3], 0)
    if out is not None and out.shape != right:
        given = in_order(out.shape, order) if len(out.shape) == 4 else out.shape
        raise InvalidArgument("out.shape", given, f"{in_order(right, order)} is allowed: the output's shape")
    return v._replace(address=address(ZEROS), shape=(*v.shape[:3], 1), strides=(0, 0, 0, 0)), None


def _expect_flag(name: str, value: object, hint: str = "") -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidArgument(name, repr(value), f"one of True, False is allowed{hint}")


def _expect_causal(is_causal: bool, alignment: Any, positions: bool) -> str | None:
    """What a Problem calls it. positions: whether anything asks where a row is. Raises InvalidArgument."""
    if not isinstance(alignment, str) or alignment not in CAUSAL:
        check_choice("causal_alignment", alignment, CAUSAL)
    if not positions and alignment != CAUSAL[0]:
        allowed = "it is allowed with is_causal=True, a window or alibi"
        raise InvalidArgument("causal_alignment", repr(alignment), allowed)
    return alignment if is_causal else None


def _check_variant(schedule: object, target: object) -> None:
    """Refuse what is of a wrong type before it is looked up: a cache can hold only what can be hashed."""
    if schedule is not None:
        _check_schedule(schedule)
    if target is not None and not isinstance(target, (str, Target)):
        check_choice("target", target, TARGETS)


def _check_schedule(schedule: object) -> None:
    if not isinstance(schedule, Schedule):
        raise InvalidArgument("schedule", repr(schedule), "a flashgen.Schedule is allowed")


@functools.lru_cache(LAYOUTS)
def _plan(
    q_shape: tuple[int, ...],
    q_strides: tuple[int, ...],
    k_shape: tuple[int, ...],
    k_strides: tuple[int, ...],
    v_shape: tuple[int, ...],
    v_strides: tuple[int, ...],
    out: Form | None,
    lse: Form | None,
    dtype: str,
    causal: str | None,
    mods: Mods | None,
    order: str,
    enable_gqa: bool,
    schedule: Schedule | None,
    target: str | Target | None,
) -> tuple[Any, Layout]:
    """The kernel for a call, and how its arrays lie: all that follows from their forms. Shapes and strides
    are of (B, H, N, D). Raises InvalidArgument, and what ``compile`` raises."""
    for name, shape in (("q", q_shape), ("k", k_shape), ("v", v_shape)):
        check_rank(name, shape)
    if not enable_gqa and q_shape[1] != k_shape[1]:
        raise InvalidArgument(
            "q.shape",
            in_order(q_shape, order),
            f"{k_shape[1]} heads as k has are allowed, or a multiple with enable_gqa=True",
        )
    mask, score, sink, inputs = mods or (None, None, False, ())
    problem = Problem(q_shape[3], v_shape[3], dtype, causal, mask, score, sink)
    forms = Form(q_shape, q_strides), Form(k_shape, k_strides), Form(v_shape, v_strides)
    layout = lay_out(problem, *forms, out, lse, order, inputs)
    steps = (
        bisect_left(QUERY_STEPS, q_shape[2]),
        bisect_left(KEY_STEPS, k_shape[2]),
        bisect_left(ROW_STEPS, q_shape[2] * (q_shape[1] // (k_shape[1] or 1))),
    )
    return _kernel(problem, schedule, target, *steps), layout


@functools.cache
def _kernel(
    problem: Problem,
    schedule: Schedule | None,
    target: str | Target | None,
    query_step: int,
    key_step: int,
    row_step: int,
) -> Any:
    """The kernel for a call whose lengths, and a group's rows, lie at these steps."""
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
