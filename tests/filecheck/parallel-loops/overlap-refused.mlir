// RUN: not flashgen opt %s -p parallel-loops 2>&1 | filecheck %s
// Tiles of 4 elements every 2: neighbours write the same elements.

func.func @f(%o: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %t = tile.broadcast %zero : f32 -> tensor<4xf32>
  scf.for %i = %c0 to %n step %c2 {
    tile.store %t, %o[%i] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK: error: parallel-loops: scf.for: %o carries a dependence from one iteration to another
