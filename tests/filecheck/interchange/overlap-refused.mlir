// RUN: not flashgen opt %s -p interchange 2>&1 | filecheck %s
// Tiles of four in steps of two: neighbouring iterations share elements, so nobody owns a slice.

func.func @f(%k: memref<?xf32>, %a: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  scf.for %j = %c0 to %n step %c2 {
    scf.for %i = %c0 to %n step %c4 {
      %kj = tile.load %k[%j] : memref<?xf32> -> tensor<4xf32>
      %old = tile.load %a[%j] : memref<?xf32> -> tensor<4xf32>
      %new = arith.addf %old, %kj : tensor<4xf32>
      tile.store %new, %a[%j] : tensor<4xf32>, memref<?xf32>
    }
  }
  func.return
}

// CHECK: error: interchange: tile.load: %a carries a dependence across iterations of both loops
