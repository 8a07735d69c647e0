"""PyTorch's tensors as kernels see them. Imported where a caller passes one, who has imported torch."""

from __future__ import annotations

from typing import Any

import torch  # pyright: ignore[reportMissingImports]

from flashgen.errors import InvalidArgument
from flashgen.runtime.arrays import Kind, View
from flashgen.runtime.tensors import ITEMSIZE

TYPES = {getattr(torch, name): name for name in ITEMSIZE}
DTYPES = {name: dtype for dtype, name in TYPES.items()}
ON_GPU = "; target 'cuda' takes CuPy's arrays: cupy.asarray makes one of a tensor on a GPU"
CPU = torch.device("cpu")
_plain_dispatch = torch.Tensor.__torch_dispatch__


class _Torch(Kind):
    """Tensors in the processor's memory, of any strides; bfloat16 included, which NumPy cannot read.

    Refused is whatever would be lost or read wrongly without a word: a gradient that would be recorded, a
    negation that is still to be done, and tensors that do not hold their elements themselves.
    """

    def look(self, name: str, value: Any) -> View:
        try:
            self._check(name, value)
            dtype = TYPES.get(value.dtype)
            size = ITEMSIZE[dtype] if dtype else value.element_size()
            strides = tuple([stride * size for stride in value.stride()])
            shape, shown = tuple(value.shape), dtype or str(value.dtype)
            found = value.data_ptr(), shape, strides, shown, self, value, name
        except RuntimeError as error:  # torch.func's wrappers have no memory, nested tensors no sizes
            said = " ".join(str(error).split())
            raise InvalidArgument(
                name, f"a tensor without memory ({said})", "a dense one is allowed"
            ) from error
        return View(*found)

    def _check(self, name: str, value: Any) -> None:
        """A microsecond is short for this, so what most tensors are is asked first."""
        if value.requires_grad and torch.is_grad_enabled():
            allowed = "there is no backward pass: its detach() is allowed, and torch.no_grad()"
            raise InvalidArgument(name, "a tensor that requires grad", allowed)
        if not value.is_cpu:
            hint = ON_GPU if value.is_cuda else ""
            allowed = f"the processor's memory is allowed{hint}"
            raise InvalidArgument(name, f"on the device {value.device}", allowed)
        kind = type(value)
        if value.layout is not torch.strided or (
            kind is not torch.Tensor and kind.__torch_dispatch__ is not _plain_dispatch
        ):
            held = f"a {kind.__name__} of layout {value.layout}"
            raise InvalidArgument(name, held, "a dense tensor that holds its own elements is allowed")
        if value.is_neg():
            raise InvalidArgument(
                name, "a tensor that is still to be negated", "its resolve_neg() is allowed"
            )

    def check_writable(self, view: View) -> None:
        """Any tensor can be written; that each element has an address of its own is looked at elsewhere."""

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        return torch.empty(shape, dtype=DTYPES[dtype], device=CPU)

    address = staticmethod(torch.Tensor.data_ptr)

    def note_write(self, view: View) -> None:
        """As an operation in place does: a backward pass that was to read the old elements raises."""
        torch.autograd.graph.increment_version(view.value)


TORCH = _Torch()
