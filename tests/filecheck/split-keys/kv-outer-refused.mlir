// RUN: flashgen emit --bc 64 --print-ir-after build | not flashgen opt - -p 'lazy-rescale,base-2,split-keys{keys=128}' 2>&1 | filecheck %s
// The state is in memory, where one part of the keys would find another's.

// CHECK: error: split-keys: scf.for: its state is in memory: run keep-state before
