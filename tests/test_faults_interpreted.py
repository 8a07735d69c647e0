"""The faults of tests/faults.py, in interpreted modules: the logic of a kernel without its machine."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.schedule import Schedule
from tests.faults import cases
from tests.modules import COMBINATIONS, call, final
from tests.strategies import Inputs


@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
@pytest.mark.parametrize("case", cases(), ids=str)
def test_fault(case, order, lazy, skip):
    """In float32, with tiles of 4 rows and 8 keys, on outputs that hold NaN before."""
    module = final(case.problem, Schedule(order, 4, 8, lazy, skip, 0, False, False, split_keys=0))
    x = Inputs(case.fault, case.q, case.k, case.v, case.scale)
    o, lse, _ = call(module, case.problem, x, np.float32)
    case.check(o, lse)
