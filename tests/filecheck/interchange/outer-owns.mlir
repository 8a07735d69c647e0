// RUN: flashgen opt %s -p interchange | filecheck %s
// Distance (0, +): each iteration of the outer loop owns two elements, and tiles of two are as wide as its step.

func.func @f(%k: memref<?xf32>, %a: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  scf.for %j = %c0 to %n step %c2 {
    scf.for %i = %c0 to %n step %c4 {
      %kj = tile.load %k[%j] : memref<?xf32> -> tensor<2xf32>
      %old = tile.load %a[%j] : memref<?xf32> -> tensor<2xf32>
      %new = arith.addf %old, %kj : tensor<2xf32>
      tile.store %new, %a[%j] : tensor<2xf32>, memref<?xf32>
    }
  }
  func.return
}

// CHECK:       scf.for %i = %c0 to %n step %c4 {
// CHECK-NEXT:    scf.for %j = %c0 to %n step %c2 {
// CHECK:           tile.store %new, %a[%j]
