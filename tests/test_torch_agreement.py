"""PyTorch's scaled_dot_product_attention as a second opinion, on a few problems; see torch_agreement.py."""

from __future__ import annotations

import pytest

from tests.torch_agreement import agree

pytest.importorskip("torch", reason="torch is not installed")


def test_pytorch_agrees() -> None:
    assert sum(agree(20, seed=1).values()) == 20
