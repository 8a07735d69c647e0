// RUN: flashgen emit --print-ir-after build | not flashgen opt - -p 'base-2,rescale-threshold{threshold=8}' 2>&1 | filecheck %s
// The accumulator is normalised in every step, so it is multiplied in every step anyway.

// CHECK: error: rescale-threshold: arith.subf: rescales what is new, too: run lazy-rescale before
