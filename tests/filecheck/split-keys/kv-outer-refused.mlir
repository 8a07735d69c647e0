// RUN: not flashgen emit --order kv-outer --bc 64 --split-keys 128 2>&1 | filecheck %s
// The state is in memory, where one part of the keys would find another's.

// CHECK: error: split-keys: scf.for: its state is in memory: run keep-state before
