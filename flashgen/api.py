"""flashgen from Python: emit a kernel, compile one, or just compute attention."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from flashgen.arguments import check_types, expect_causal, expect_flag, one_column, results
from flashgen.errors import check_choice
from flashgen.options import NO_EXTRA, Mods, find_extra
from flashgen.problem import DTYPES, Problem, computed
from flashgen.runtime.arrays import View, kind_of, look, to_write, turned
from flashgen.runtime.tensors import (
    AXES,
    BHND,
    FORMS,
    Form,
    Layout,
    check_groups,
    check_rank,
    in_order,
    lay_out,
)
from flashgen.schedule import Schedule
from flashgen.targets import find
from flashgen.targets.base import Target
from flashgen.variants import best_target, check_variant, compiled, suited, variant

if TYPE_CHECKING:
    from flashgen.runtime.cpu import CpuKernel


def emit(problem: Problem, schedule: Schedule | None = None, target: str | Target = "avx2") -> str:
    """The source of a kernel: one file of C++ or CUDA that needs its compiler's own headers and no more.

    schedule: FA2 if not given; the target decides what it leaves open.
    target: one of flashgen.targets.TARGETS, or its name. It need not run on this machine.

    Raises InvalidArgument, or TargetLimit where the tiles do not fit.
    """
    from flashgen import emission

    return emission.emit(*variant(problem, schedule, target)).source


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
    return compiled(*variant(problem, schedule, best_target() if target is None else target))


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
    causal = expect_causal(is_causal, causal_alignment, window, alibi)
    if type(enable_gqa) is not bool:
        enable_gqa = expect_flag("enable_gqa", enable_gqa)
    if type(return_lse) is not bool:
        return_lse = expect_flag("return_lse", return_lse)
    check_variant(schedule, target)
    see = look
    if target is not None or type(q) is not np.ndarray:
        see, target = _look_for(q, target)
    query, key, value = see("q", q), see("k", k), see("v", v)
    dtype = query.dtype
    if dtype not in DTYPES or not dtype == key.dtype == value.dtype:
        check_types(query, key, value)
    o = None if out is None else to_write(see("out", out), dtype)
    row_lse = None if lse is None else to_write(see("lse", lse), computed(dtype))
    if layout != BHND:
        query, key, value, o = _turn(layout, query, key, value, o)
    elif not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        _check_ranks(query, key, value)
    no_values = value.shape[3] == 0
    if no_values:
        value, o = one_column(query, value, o, functools.partial(in_order, order=layout)), None
    extra = NO_EXTRA
    if not (attn_mask is window is softcap is alibi is score_mod is mask_mod is sinks is None):
        extra = find_extra(
            see,
            (query.shape[0], query.shape[1], query.shape[2], key.shape[2]),
            dtype,
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
    return results(made, made_lse, out, lse, return_lse, no_values)


def _look_for(
    q: object, target: str | Target | None
) -> tuple[Callable[[str, object], View], str | Target | None]:
    """How arrays of a call are looked at, and its target: CuPy's arrays are for a GPU."""
    from flashgen.runtime.cuda_arrays import CUPY, look_anywhere

    if target is None and kind_of(type(q)) is CUPY:
        target = "cuda"
    language = find(target).language if isinstance(target, str) else target and target.language
    return look_anywhere if language == "cuda" else look, target


def _turn(order: str, *views: View | None) -> list[Any]:
    """Views of (B, N, H, D) as such of (B, H, N, D). Raises InvalidArgument."""
    check_choice("layout", order, AXES)
    _check_ranks(*views, order=order)
    return [None if view is None else turned(view, order) for view in views]


def _check_ranks(*views: View | None, order: str = BHND) -> None:
    for view in views:
        if view is not None:
            check_rank(view.name, view.shape, order)


@functools.lru_cache(FORMS)
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
    mods: Mods,
    order: str,
    enable_gqa: bool,
    schedule: Schedule | None,
    target: str | Target | None,
) -> tuple[Any, Layout]:
    """The kernel for a call, and how its arrays lie: all that follows from their forms. Shapes and strides
    are of (B, H, N, D). Raises InvalidArgument, and what ``compile`` raises."""
    check_groups(in_order(q_shape, order), q_shape[1], k_shape[1], enable_gqa)
    mask, score, sink, inputs = mods
    problem = Problem(q_shape[3], v_shape[3], dtype, causal, mask, score, sink)
    forms = Form(q_shape, q_strides), Form(k_shape, k_strides), Form(v_shape, v_strides)
    layout = lay_out(problem, *forms, out, lse, order, inputs)
    group = q_shape[1] // (k_shape[1] or 1)
    return suited(problem, schedule, target, q_shape[2], k_shape[2], group), layout
