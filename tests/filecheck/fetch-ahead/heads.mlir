// RUN: flashgen emit -d 8 --head-dim-v 5 --br 4 --bc 6 --panel 16 --fetch-ahead --print-ir-after fetch-ahead | filecheck %s
// Beside its products a head fetches, for each of its tiles of queries, as many rows of the next head's K, V and Q.

// CHECK:      ^bb0(%b: index, %g: index):
// CHECK-NEXT:   [[G:%[0-9]+]] = arith.addi %g, %c1 : index
// CHECK-NEXT:   %g_next = arith.remsi [[G]], %Hkv {made_by = "fetch-ahead"} : index
// CHECK-NEXT:   [[CARRY:%[0-9]+]] = arith.floordivsi [[G]], %Hkv : index
// CHECK-NEXT:   [[B:%[0-9]+]] = arith.addi %b, [[CARRY]] : index
// CHECK-NEXT:   [[LAST:%[0-9]+]] = arith.subi %B, %c1 : index
// CHECK-NEXT:   %b_next = arith.minsi [[B]], [[LAST]] {made_by = "fetch-ahead"} : index
// CHECK:        tile.pack
// CHECK:      ^bb0(%r: index, %i: index):
// CHECK:        %h = arith.addi
// CHECK-NEXT:   %h_next = arith.addi {{%[0-9]+}}, %r {made_by = "fetch-ahead"} : index
// CHECK:        scf.for %j
// CHECK:          tile.fetch %k[%b_next, %g_next, %i, %c0] of tensor<4x8xf32>
// CHECK-NEXT:     tile.fetch %q[%b_next, %h_next, %i, %c0] of tensor<4x8xf32>
// CHECK-NEXT:     %s = tile.dot %qis, %kj_panels
// CHECK:          tile.fetch %v[%b_next, %g_next, %i, %c0] of tensor<4x5xf32>
// CHECK-NEXT:     tile.fetch %o[%b, %h, %i, %c0] of tensor<4x5xf32>
// CHECK-NEXT:     tile.dot %p
