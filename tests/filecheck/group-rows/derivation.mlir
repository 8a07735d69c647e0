// RUN: flashgen emit --causal --panel 0 --group-rows --br 4 --bc 4 -d 8 --print-ir | filecheck %s
// K and V are loaded once for all heads of a group, and spans begin anew with each head.

// CHECK:  scf.parallel
// CHECK:  tile.load %q_rows[%b, %g, %i, %c0]
// CHECK:  scf.for %j =
// CHECK-NEXT:  tile.load %k[%b, %g, %j, %c0] in_bounds
// CHECK-NEXT:  tile.load %v[%b, %g, %j, %c0] in_bounds
// CHECK-NOT:  tile.row_span
// CHECK:  scf.for %j_1 =
// CHECK:  %span = tile.row_span %i, %j_1 {
// CHECK-NEXT:  ^bb0(%row: index):
// CHECK-NEXT:    %query = arith.remsi %row, %Nq
// CHECK:  tile.store %{{.*}}, %o_rows[%b, %g, %i, %c0]
// CHECK:  tile.store %{{.*}}, %lse_rows[%b, %g, %i]
