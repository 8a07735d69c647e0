// RUN: not flashgen emit --no-lazy-rescale --bc 64 --split-keys 128 2>&1 | filecheck %s
// The accumulator is normalised in every step.

// CHECK: error: split-keys: arith.subf: rescales what is new, too: run lazy-rescale before
