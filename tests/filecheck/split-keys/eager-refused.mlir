// RUN: flashgen emit --bc 64 --print-ir-after build | not flashgen opt - -p 'base-2,split-keys{keys=128}' 2>&1 | filecheck %s
// The accumulator is normalised in every step.

// CHECK: error: split-keys: arith.subf: rescales what is new, too: run lazy-rescale before
