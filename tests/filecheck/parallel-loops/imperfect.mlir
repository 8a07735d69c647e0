// RUN: flashgen opt %s -p parallel-loops | filecheck %s
// What is stored in front of an inner loop would be stored by each of its iterations: the chain ends there.

func.func @f(%o: memref<?x?xf32>, %m: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %t = tile.broadcast %zero : f32 -> tensor<1xf32>
  scf.for %b = %c0 to %n step %c1 {
    tile.store %t, %m[%b] : tensor<1xf32>, memref<?xf32>
    scf.for %i = %c0 to %n step %c1 {
      tile.store %t, %o[%b, %i] : tensor<1xf32>, memref<?x?xf32>
    }
  }
  func.return
}

// CHECK:       "scf.parallel"(%c0, %n, %c1)
// CHECK-NEXT:  ^bb0(%b: index):
// CHECK-NEXT:    tile.store %t, %m[%b]
// CHECK-NEXT:    scf.for %i = %c0 to %n step %c1
