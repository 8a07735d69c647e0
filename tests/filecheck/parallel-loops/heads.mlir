// RUN: flashgen opt %s -p parallel-loops | filecheck %s
// The query heads of a key head, h = g * group + r, are nobody else's. A loop that carries a sum ends the
// chain, and what is computed between the headers goes into the body, its workspace with it.

func.func @f(%o: memref<?x?x?xf32>, %B: index, %Hkv: index, %group: index, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  scf.for %b = %c0 to %B step %c1 {
    scf.for %g = %c0 to %Hkv step %c1 {
      %first = arith.muli %g, %group : index
      scf.for %r = %c0 to %group step %c1 {
        %h = arith.addi %first, %r : index
        %work = memref.alloc(%n) : memref<?xf32>
        scf.for %i = %c0 to %n step %c4 {
          %old = tile.load %work[%c0] : memref<?xf32> -> tensor<4xf32>
          tile.store %old, %work[%c0] : tensor<4xf32>, memref<?xf32>
          tile.store %old, %o[%b, %h, %i] : tensor<4xf32>, memref<?x?x?xf32>
        }
      }
    }
  }
  func.return
}

// CHECK:       "scf.parallel"(%c0, %c0, %c0, %B, %Hkv, %group, %c1, %c1, %c1)
// CHECK-NEXT:  ^bb0(%b: index, %g: index, %r: index):
// CHECK-NEXT:    %first = arith.muli %g, %group
// CHECK-NEXT:    %h = arith.addi %first, %r
// CHECK-NEXT:    %work = memref.alloc(%n)
// CHECK-NEXT:    scf.for %i = %c0 to %n step %c4 {
// CHECK:         }
// CHECK-NEXT:    scf.reduce
// CHECK-NEXT:  }) {made_by = "parallel-loops"}
