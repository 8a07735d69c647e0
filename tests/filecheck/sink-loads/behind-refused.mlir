// RUN: not flashgen opt %s -p sink-loads 2>&1 | filecheck %s
// What stands behind the inner loop keeps the nest from being perfect.

func.func @f(%k: memref<?xf32>, %a: memref<?xf32>, %n: index, %step: index) {
  %c0 = arith.constant 0 : index
  scf.for %j = %c0 to %n step %step {
    %x = tile.load %k[%j] : memref<?xf32> -> tensor<4xf32>
    scf.for %i = %c0 to %n step %step {
    }
    tile.store %x, %a[%j] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK: error: sink-loads: scf.for: something follows the inner loop
