// RUN: flashgen emit --layout packed-paged --panel 0 --group-rows --split-keys 8 --br 4 --bc 4 -d 8 --print-ir | filecheck %s
// The heads of one sequence are rows of the same tiles: numbered in the loop over sequences; then keys in parts.

// CHECK:       scf.parallel
// CHECK-NEXT:  ^bb0(%b: index, %g: index):
// CHECK:         %rows = arith.muli %group, %Nq
// CHECK-NEXT:    %q_b_rows = tile.group_rows %q_b[%Hkv, %rows]
// CHECK-NEXT:    %o_b_rows = tile.group_rows %o_b[%Hkv, %rows]
// CHECK-NEXT:    %lse_b_rows = tile.group_rows %lse_b[%Hkv, %rows]
// CHECK:         %parts = arith.ceildivsi %Nk,
// CHECK:         scf.parallel
// CHECK:           tile.load %q_b_rows[%c0, %g, %i, %c0]
// CHECK:           tile.load %k_b[%c0, %g, %j, %c0]
// CHECK:         tile.store %{{.*}}, %o_b_rows[%c0, %g, %{{.*}}, %c0]
