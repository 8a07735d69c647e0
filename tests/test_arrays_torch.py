"""PyTorch's tensors in calls, bfloat16 included: nothing is copied, and nothing is lost without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flashgen
from flashgen.errors import InvalidArgument
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.runtime import load
from flashgen.runtime.arrays import bits, look
from flashgen.runtime.cpu import CpuKernel
from flashgen.targets.cpu import Avx2
from tests.compiled import quick_compiler
from tests.sample_kernel import mark_source, skip_unless_it_runs

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

SHAPES = {"q": (1, 4, 3, 8), "k": (1, 2, 5, 8), "v": (1, 2, 5, 6), "out": (1, 4, 3, 6), "lse": (1, 4, 3)}
WRITTEN = 100 * np.arange(4)[None, :, None, None] + 10 * np.arange(3)[:, None] + np.arange(6.0)


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> Iterator[None]:
    skip_unless_it_runs(Avx2())
    with quick_compiler():
        yield


@pytest.fixture(scope="module")
def mark() -> CpuKernel:
    return load(mark_source("mark"), "mark", Problem(8, 6), Avx2())


def zeros(name: str, **options: Any) -> Any:
    return torch.zeros(SHAPES[name], **options)


def tensors(dtype: Any, **sizes: int) -> tuple[Any, ...]:
    torch.manual_seed(0)
    sizes = {"hq": 4, "nq": 7, "nk": 9} | sizes
    shapes = (2, sizes["hq"], sizes["nq"], 24), (2, 2, sizes["nk"], 24), (2, 2, sizes["nk"], 40)
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_computes(dtype: str, layout: str) -> None:
    """As the reference says, in tensors of the type; a view of any strides gives the same bits."""
    q, k, v = tensors(getattr(torch, dtype))
    exact = [x.double().numpy() for x in (q, k, v)]
    problem = Problem(24, 40, dtype, "bottom-right")
    options = {"is_causal": True, "enable_gqa": True, "return_lse": True, "layout": layout}
    if layout == "BNHD":
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    o, lse = flashgen.attention(q, k, v, **options)
    assert (o.dtype, lse.dtype, o.device.type) == (q.dtype, torch.float32, "cpu") and o.is_contiguous()
    seen = o.double().numpy() if layout == "BHND" else o.transpose(1, 2).double().numpy()
    scale = float(np.float32(24**-0.5))
    bound(problem, *exact, scale).check(seen, lse.numpy(), *attention(problem, *exact, scale))
    wide = [
        torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)[..., ::2] for x in (q, k, v)
    ]
    for x, y in zip(wide, (q, k, v), strict=True):
        x.copy_(y)
    again, lse_again = flashgen.attention(*wide, **options)
    assert torch.equal(again, o) and torch.equal(lse_again, lse)


def test_nothing_is_copied(mark: CpuKernel) -> None:
    """What the kernel changes in its inputs is seen in the tensors; in a view, which is transposed, too."""
    q, k, v = zeros("q"), torch.zeros(1, 5, 2, 8).transpose(1, 2), torch.zeros(1, 2, 1, 6).expand(1, 2, 5, 6)
    o, lse = mark(q, k, v, scale=0.5)
    assert (q[0, 0, 0, 0], k[0, 0, 0, 0], v[0, 0, 0, 0]) == (1, 2, 3)
    assert type(o) is type(lse) is torch.Tensor
    np.testing.assert_array_equal(o.numpy(), WRITTEN)
    assert (lse == 0.5).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32", "int64", "bool"])
def test_views(dtype: str) -> None:
    """Every type that a kernel stores or reads, with its strides."""
    whole = torch.zeros(4, 6, dtype=getattr(torch, dtype))
    for x in (whole, whole[::2, 1::3], whole.T, whole[:1].expand(3, 6), whole[:0], whole[0, 0]):
        seen, size = look("x", x), x.element_size()
        assert seen.dtype == dtype and seen.address == x.data_ptr()
        assert (seen.shape, seen.strides) == (tuple(x.shape), tuple(size * s for s in x.stride()))
        found = bits(seen)
        assert found.shape == tuple(x.shape) and found.itemsize == size


def test_outputs_are_written_and_returned(mark: CpuKernel) -> None:
    wide = torch.full((1, 4, 3, 12), float("nan"))
    out, lse = wide[..., ::2], torch.full((3, 4, 1), float("nan")).permute(2, 1, 0)
    got, got_lse = mark(zeros("q"), zeros("k"), zeros("v"), scale=2, out=out, lse=lse)
    assert got is out and got_lse is lse
    np.testing.assert_array_equal(out.numpy(), WRITTEN)
    assert wide[..., 1::2].isnan().all() and (lse == 2).all()


def test_kinds_may_be_mixed(mark: CpuKernel) -> None:
    """Results are like q."""
    q, k, v = (np.zeros(SHAPES[name], np.float32) for name in "qkv")
    assert type(mark(torch.from_numpy(q), k, v)[0]) is torch.Tensor
    assert type(mark(q, torch.from_numpy(k), memoryview(v))[0]) is np.ndarray
    out = zeros("out")
    assert mark(q, k, v, out=out)[0] is out and out[0, 3, 2, 5] == 325
    assert (q.flat[0], k.flat[0], v.flat[0]) == (3, 6, 9)


def test_a_write_is_seen_by_autograd(mark: CpuKernel) -> None:
    """A backward pass that was to read the old elements raises, as after any operation in place."""
    out, weight = zeros("out"), torch.ones((), requires_grad=True)
    loss = (weight * out).sum()
    mark(zeros("q"), zeros("k"), zeros("v"), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_where_gradients_are_off(mark: CpuKernel) -> None:
    q = zeros("q", requires_grad=True)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            o, _ = mark(q, zeros("k"), torch.nn.Parameter(zeros("v")))
            assert not o.requires_grad
            mark(q, zeros("k"), zeros("v"), out=zeros("out"))
    mark(q.detach(), zeros("k"), zeros("v"))


def test_a_default_device_changes_nothing(mark: CpuKernel) -> None:
    q, k, v = zeros("q"), zeros("k"), zeros("v")
    torch.set_default_device("meta")
    try:
        o, _ = mark(q, k, v)
    finally:
        torch.set_default_device(None)
    assert o.is_cpu and o[0, 3, 2, 5] == 325


@pytest.mark.parametrize("zero", ["hq", "nq", "nk"])
def test_zero_sizes(zero: str) -> None:
    q, k, v = tensors(torch.float32, **{zero: 0})
    o, lse = flashgen.attention(q, k, v, enable_gqa=True, return_lse=True)
    assert o.shape == (*q.shape[:3], 40) and not o.any() and (lse == -float("inf")).all()
    assert flashgen.attention(q, k, v[..., :0], enable_gqa=True).shape == (*q.shape[:3], 0)


def test_merge() -> None:
    q, k, v = tensors(torch.bfloat16)
    options = {"enable_gqa": True, "return_lse": True}
    whole, lse = flashgen.attention(q, k, v, **options)
    one = flashgen.attention(q, k[:, :, :4], v[:, :, :4], **options)
    other = flashgen.attention(q, k[:, :, 4:], v[:, :, 4:], **options)
    o, row = flashgen.merge(*one, *other)
    assert o.dtype == torch.bfloat16 and type(row) is torch.Tensor
    torch.testing.assert_close(row, lse, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(o, whole, rtol=0, atol=3 * 2**-8 * float(v.abs().max()))


def fake() -> Any:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(SHAPES["q"])


def negated() -> Any:
    return torch.view_as_complex(torch.zeros(*SHAPES["q"], 2)).conj().imag


LARGE = torch.zeros(1000)
REFUSED = [
    (lambda: {"q": zeros("q", requires_grad=True)}, "q is a tensor that requires grad; there is no backward"),
    (lambda: {"v": torch.nn.Parameter(zeros("v"))}, "v is a tensor that requires grad"),
    (lambda: {"out": zeros("out", requires_grad=True)}, "out is a tensor that requires grad"),
    (lambda: {"k": zeros("k", device="meta")}, "k is on the device meta; the processor's memory is allowed"),
    (lambda: {"out": zeros("out", device="meta")}, "out is on the device meta"),
    (lambda: {"q": negated()}, "q is a tensor that is still to be negated; its resolve_neg() is allowed"),
    (lambda: {"q": torch.zeros(SHAPES["q"], dtype=torch.cfloat).conj()}, "q.dtype is 'torch.complex64'"),
    (lambda: {"q": zeros("q").to_sparse()}, "q is a Tensor of layout torch.sparse_coo; a dense tensor"),
    (lambda: {"q": zeros("q").to_mkldnn()}, "q is a Tensor of layout torch._mkldnn"),
    (
        lambda: {"q": torch.nested.nested_tensor([torch.zeros(3), torch.zeros(4)])},
        "q is a tensor without memory",
    ),
    (lambda: {"q": fake()}, "q is a FakeTensor of layout torch.strided; a dense tensor"),
    (lambda: {"q": zeros("q").double()}, "q.dtype is 'float64'; native float32 is allowed"),
    (lambda: {"q": zeros("q").bfloat16()}, "q.dtype is 'bfloat16'; native float32 is allowed"),
    (lambda: {"q": zeros("q", dtype=torch.cfloat)}, "q.dtype is 'torch.complex64'"),
    (lambda: {"q": zeros("q", dtype=torch.float8_e5m2)}, "q.dtype is 'torch.float8_e5m2'"),
    (lambda: {"q": zeros("q")[0]}, "q.shape is (4, 3, 8); four dimensions are allowed"),
    (lambda: {"k": zeros("k")[:, :, :, :4]}, "k.shape is (1, 2, 5, 4); (1, 2, 5, 8) is allowed"),
    (lambda: {"out": zeros("out")[..., :1].expand(SHAPES["out"])}, "out.strides is (288, 72, 24, 0)"),
    (
        lambda: {"q": LARGE[:96].view(SHAPES["q"]), "out": LARGE[95:167].view(SHAPES["out"])},
        "out is in memory that q uses",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message[:45] for _, message in REFUSED])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_refused_before_anything_is_written(mark: CpuKernel, change: Any, message: str) -> None:
    arguments = {name: torch.full(shape, 7.0) for name, shape in SHAPES.items()} | change()
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        mark(**arguments)
    assert all((arguments[name] == 7).all() for name in SHAPES if name not in change())
    assert not LARGE.any()


def test_inside_a_transform(mark: CpuKernel) -> None:
    k, v = zeros("k"), zeros("v")
    with pytest.raises(InvalidArgument, match="q is a tensor without memory"):
        torch.func.vmap(lambda q: mark(q, k, v)[0])(torch.zeros(2, *SHAPES["q"]))
