// RUN: not flashgen opt %s -p sink-loads 2>&1 | filecheck %s
// The inner loop stores to the array: a load in every iteration would see what it stores.

func.func @f(%a: memref<?xf32>, %n: index, %step: index) {
  %c0 = arith.constant 0 : index
  scf.for %j = %c0 to %n step %step {
    %x = tile.load %a[%j] : memref<?xf32> -> tensor<4xf32>
    scf.for %i = %c0 to %n step %step {
      tile.store %x, %a[%i] : tensor<4xf32>, memref<?xf32>
    }
  }
  func.return
}

// CHECK: error: sink-loads: tile.load: the inner loop stores to %a
