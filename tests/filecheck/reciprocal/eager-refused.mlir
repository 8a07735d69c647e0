// RUN: flashgen emit -d 8 --br 4 --bc 4 --no-lazy-rescale --print-ir-after base-2 | not flashgen opt - -p reciprocal 2>&1 | filecheck %s
// FlashAttention-1 divides in every step.

// CHECK: error: reciprocal: arith.subf: rescales what is new, too: run lazy-rescale before
