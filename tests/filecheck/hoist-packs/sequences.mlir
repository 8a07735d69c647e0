// RUN: flashgen emit --layout packed-paged --br 4 --bc 4 -d 8 --panel 16 --hoist-packs --print-ir | filecheck %s
// As many panels as a sequence has tiles of keys, for all of its queries; threads share its tiles and its heads.

// CHECK:       scf.parallel
// CHECK-NEXT:  ^bb0(%b: index, %g: index):
// CHECK:         %tiles = arith.ceildivsi %Nk, %bc
// CHECK-NEXT:    %k_b_panels = memref.alloc(%tiles)
// CHECK-NEXT:    %v_b_panels = memref.alloc(%tiles)
// CHECK-NEXT:    scf.parallel
// CHECK-NEXT:    ^bb0(%t: index):
// CHECK:           tile.load %k_b[%c0, %g, %j, %c0]
// CHECK:         scf.parallel
// CHECK-NEXT:    ^bb0(%r: index, %i: index):
// CHECK:           tile.load %q_b[%c0, %h, %i, %c0]
// CHECK:           tile.load %k_b_panels[
