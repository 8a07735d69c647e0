// RUN: flashgen opt %s -p parallel-loops | filecheck %s
// A range that depends on the loop around it is no side of a grid: the loop stays.

func.func @f(%o: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %t = tile.broadcast %zero : f32 -> tensor<1xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %i step %c1 {
      tile.store %t, %o[%i, %j] : tensor<1xf32>, memref<?x?xf32>
    }
  }
  func.return
}

// CHECK:       "scf.parallel"(%c0, %n, %c1)
// CHECK-NEXT:  ^bb0(%i: index):
// CHECK-NEXT:    scf.for %j = %c0 to %i step %c1
