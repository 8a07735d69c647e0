"""PyTorch's scaled_dot_product_attention as a second opinion, on a few problems; see torch_agreement.py."""

from __future__ import annotations

import pytest

from tests.compiled import quick_compiler
from tests.torch_agreement import DTYPES, agree

pytest.importorskip("torch", reason="torch is not installed")


def test_pytorch_agrees() -> None:
    with quick_compiler():
        kinds = agree(40, seed=1)
    assert {kind.split()[0] for kind in kinds} == set(DTYPES)
    assert {kind.split()[1] for kind in kinds} == {"none", "causal", "bool", "bias"}
