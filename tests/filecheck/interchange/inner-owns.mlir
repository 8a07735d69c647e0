// RUN: flashgen opt %s -p interchange | filecheck %s
// Distance (+, 0): each iteration of the inner loop owns its tile of %a, as a query tile owns its state.

func.func @f(%k: memref<?xf32>, %a: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  scf.for %j = %c0 to %n step %c2 {
    scf.for %i = %c0 to %n step %c4 {
      %kj = tile.load %k[%j] : memref<?xf32> -> tensor<4xf32>
      %old = tile.load %a[%i] : memref<?xf32> -> tensor<4xf32>
      %new = arith.addf %old, %kj : tensor<4xf32>
      tile.store %new, %a[%i] : tensor<4xf32>, memref<?xf32>
    }
  }
  func.return
}

// CHECK:       scf.for %i = %c0 to %n step %c4 {
// CHECK-NEXT:    scf.for %j = %c0 to %n step %c2 {
// CHECK-NEXT:      %kj = tile.load %k[%j]
// CHECK-NEXT:      %old = tile.load %a[%i]
// CHECK-NEXT:      %new = arith.addf %old, %kj
// CHECK-NEXT:      tile.store %new, %a[%i]
// CHECK-NEXT:    } {made_by = "interchange"}
// CHECK-NEXT:  } {made_by = "interchange"}
