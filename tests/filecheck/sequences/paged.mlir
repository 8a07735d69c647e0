// RUN: flashgen emit --layout paged --br 4 --bc 4 -d 8 --panel 0 --print-ir | filecheck %s
// Keys of a sequence are read through its pages; queries, all of one length, are known in front of all loops.

// CHECK:       %Nq = memref.dim %q, %c2
// CHECK:       scf.parallel
// CHECK-NEXT:  ^bb0(%b: index, %g: index, %r: index, %i: index):
// CHECK-NEXT:    %k_b = tile.pages %k, %block_table, %seqlens_k[%b]
// CHECK-NEXT:    %v_b = tile.pages %v, %block_table, %seqlens_k[%b]
// CHECK-NEXT:    %Nk = memref.dim %k_b, %c2
// CHECK:         tile.load %q[%b, %h, %i, %c0]
// CHECK:         scf.for %j =
// CHECK-NEXT:      tile.load %k_b[%c0, %g, %j, %c0] in_bounds
// CHECK-NEXT:      tile.load %v_b[%c0, %g, %j, %c0] in_bounds
// CHECK:         tile.store %{{.*}}, %o[%b, %h, %i, %c0]
