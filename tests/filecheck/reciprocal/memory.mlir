// RUN: flashgen emit -d 8 --br 4 --bc 4 --order kv-outer --rescale-threshold 64 --print-ir-after reciprocal | filecheck %s
// State in memory, and a reference that is held: l is at least 1 all the same.

// CHECK:      tile.hold
// CHECK-NOT:  arith.divf
// CHECK:      %o_i = tile.load %acc
// CHECK-NEXT: [[L:%[0-9]+]] = tile.load %l[
// CHECK-NEXT: %divisor = tile.replace [[L]], 0.000000e+00 : f32, 1.000000e+00 : f32
// CHECK:      %inverse = arith.divf {{%[0-9]+}}, %divisor {made_by = "reciprocal"} : tensor<4xf32>
// CHECK-NOT:  arith.divf
// CHECK:      arith.mulf
