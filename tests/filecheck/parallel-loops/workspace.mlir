// RUN: flashgen opt %s -p parallel-loops | filecheck %s
// Iterations touch slices of the workspace that are their own: each may as well have its own workspace.

func.func @f(%o: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %t = tile.broadcast %zero : f32 -> tensor<4xf32>
  scf.for %b = %c0 to %n step %c1 {
    %work = memref.alloc(%n) : memref<?xf32>
    scf.for %i = %c0 to %n step %c4 {
      tile.store %t, %work[%i] : tensor<4xf32>, memref<?xf32>
      %x = tile.load %work[%i] : memref<?xf32> -> tensor<4xf32>
      tile.store %x, %o[%b, %i] : tensor<4xf32>, memref<?x?xf32>
    }
  }
  func.return
}

// CHECK:       "scf.parallel"(%c0, %c0, %n, %n, %c1, %c4)
// CHECK-NEXT:  ^bb0(%b: index, %i: index):
// CHECK-NEXT:    %work = memref.alloc(%n)
// CHECK-NEXT:    tile.store %t, %work[%i]
