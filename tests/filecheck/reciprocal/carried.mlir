// RUN: flashgen emit -d 8 --br 4 --bc 4 --print-ir-after reciprocal | filecheck %s
// One division a row, behind the loop that carries the state, and products with what it gives.

// CHECK:      [[ONE:%[0-9]+]] = arith.constant 1.000000e+00 : f32
// CHECK:      scf.for %j
// CHECK-NOT:    arith.divf
// CHECK:      %divisor = tile.replace %l_new, 0.000000e+00 : f32, 1.000000e+00 : f32
// CHECK-NEXT: [[ONES:%[0-9]+]] = tile.broadcast [[ONE]] {made_by = "reciprocal"} : f32 -> tensor<4xf32>
// CHECK-NEXT: %inverse = arith.divf [[ONES]], %divisor {made_by = "reciprocal"} : tensor<4xf32>
// CHECK-NEXT: [[WIDE:%[0-9]+]] = tile.broadcast %inverse {made_by = "reciprocal"} : tensor<4xf32> -> tensor<4x8xf32>
// CHECK-NEXT: %o_i = arith.mulf %acc_new, [[WIDE]] {made_by = "lazy-rescale, reciprocal"} : tensor<4x8xf32>
// CHECK-NOT:  arith.divf
// CHECK:      tile.store %o_i, %o
