// RUN: flashgen emit --layout packed --causal --br 4 --bc 4 -d 8 --panel 0 --print-ir | filecheck %s
// Each sequence is an array of its own, with lengths of its own; tiles that its mask shows whole lie within it.

// CHECK:       %B = arith.subi %{{.*}}, %c1 : index
// CHECK:       scf.parallel
// CHECK-NEXT:  ^bb0(%b: index, %g: index, %r: index):
// CHECK-NEXT:    %q_b = tile.sequence %q, %cu_seqlens_q[%b]
// CHECK-NEXT:    %o_b = tile.sequence %o, %cu_seqlens_q[%b]
// CHECK-NEXT:    %lse_b = tile.sequence %lse, %cu_seqlens_q[%b]
// CHECK-NEXT:    %Nq = memref.dim %q_b, %c2
// CHECK-NEXT:    %k_b = tile.sequence %k, %cu_seqlens_k[%b]
// CHECK-NEXT:    %v_b = tile.sequence %v, %cu_seqlens_k[%b]
// CHECK-NEXT:    %Nk = memref.dim %k_b, %c2
// CHECK-NEXT:    %offset = arith.subi %Nk, %Nq
// CHECK:         scf.for %i = %c0 to %Nq step %br {
// CHECK:           tile.load %q_b[%c0, %h, %i, %c0]
// CHECK:           scf.for %j =
// CHECK-NEXT:        tile.load %k_b[%c0, %g, %j, %c0] in_bounds
// CHECK-NEXT:        tile.load %v_b[%c0, %g, %j, %c0] in_bounds
// CHECK-NOT:         tile.row_span
// CHECK:           scf.for %j_1 =
// CHECK-NEXT:        tile.load %k_b[%c0, %g, %j_1, %c0] {
// CHECK:             arith.minsi %Nk,
// CHECK:           tile.store %{{.*}}, %o_b[%c0, %h, %i, %c0]
// CHECK:           tile.store %{{.*}}, %lse_b[%c0, %h, %i]
