// RUN: flashgen emit -d 8 --br 4 --bc 4 --panel 16 --hoist-packs --print-ir-after accumulate | not flashgen opt - -p fetch-ahead 2>&1 | filecheck %s
// Which iteration comes next is known of a parallel loop.

// CHECK: error: fetch-ahead: builtin.module: no parallel loop: run parallel-loops before
