"""Arrays beside memory that nobody may touch, and calls that survive it if a kernel does."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import multiprocessing
from collections.abc import Callable

import numpy as np

PAGE = mmap.PAGESIZE
NONE, READ = 0, 1  # PROT_NONE, PROT_READ


class Guarded:
    """Memory between two pages that may neither be read nor written."""

    def __init__(self, size: int):
        self.size = -(-max(size, 1) // PAGE) * PAGE
        self._memory = mmap.mmap(-1, self.size + 2 * PAGE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._protect(0, PAGE, NONE)
        self._protect(PAGE + self.size, PAGE, NONE)

    def place(self, array: np.ndarray, at_end: bool) -> np.ndarray:
        """A contiguous copy that ends where the memory ends, or begins where it begins."""
        offset = PAGE + (self.size - array.nbytes if at_end else 0)
        copy = np.frombuffer(self._memory, array.dtype, array.size, offset).reshape(array.shape)
        copy[...] = array
        return copy

    def make_read_only(self) -> None:
        """Writing here ends the process from now on."""
        self._protect(PAGE, self.size, READ)

    def _protect(self, offset: int, size: int, access: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._start + offset), ctypes.c_size_t(size), access):
            raise OSError(ctypes.get_errno(), "mprotect")


def place(array: np.ndarray, at_end: bool, read_only: bool = False) -> np.ndarray:
    """A copy in guarded memory of its own."""
    memory = Guarded(array.nbytes)
    copy = memory.place(array, at_end)
    if read_only:
        memory.make_read_only()
    return copy


def exit_status(call: Callable[[], None]) -> int:
    """Of a child process that does this: 0, 1 after an exception, or minus the signal that ended it."""

    def quietly() -> None:
        faulthandler.disable()
        call()

    child = multiprocessing.get_context("fork").Process(target=quietly)
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode
