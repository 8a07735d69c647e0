// RUN: not flashgen opt %s -p interchange 2>&1 | filecheck %s
// Something stands between the two headers.

func.func @f(%k: memref<?xf32>, %a: memref<?xf32>, %n: index, %step: index) {
  %c0 = arith.constant 0 : index
  scf.for %j = %c0 to %n step %step {
    %x = tile.load %k[%j] : memref<?xf32> -> tensor<4xf32>
    scf.for %i = %c0 to %n step %step {
      tile.store %x, %a[%i] : tensor<4xf32>, memref<?xf32>
    }
  }
  func.return
}

// CHECK: error: interchange: scf.for: the nest is not perfect; sink-loads first
