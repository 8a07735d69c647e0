// RUN: flashgen opt %s -p keep-state | filecheck %s
// The accumulator becomes a carried value, its workspace goes; Q's load moves out, K's moves with the loop and stays.

func.func @f(%k: memref<?x4xf32>, %q: memref<?x4xf32> {tile.extents = ["Nq", "D"]},
    %o: memref<?x4xf32> {tile.extents = ["Nq", "D"]}, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %nq = memref.dim %q, %c0 : memref<?x4xf32>
  %acc = memref.alloc(%nq) : memref<?x4xf32>
  scf.for %i = %c0 to %nq step %c4 {
    %start = tile.broadcast %zero : f32 -> tensor<4x4xf32>
    tile.store %start, %acc[%i, %c0] : tensor<4x4xf32>, memref<?x4xf32>
    scf.for %j = %c0 to %n step %c4 {
      %qi = tile.load %q[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      %kj = tile.load %k[%j, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      %x = tile.load %acc[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      %s = tile.dot %qi, %kj : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
      %y = arith.addf %x, %s : tensor<4x4xf32>
      tile.store %y, %acc[%i, %c0] : tensor<4x4xf32>, memref<?x4xf32>
    }
    %end = tile.load %acc[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
    tile.store %end, %o[%i, %c0] : tensor<4x4xf32>, memref<?x4xf32>
  }
  func.return
}

// CHECK-NOT:   memref.alloc
// CHECK:       scf.for %i
// CHECK-NEXT:    %start = tile.broadcast %zero
// CHECK-NEXT:    %qi = tile.load %q[%i, %c0]
// CHECK-NEXT:    [[R:%.*]] = scf.for %j = %c0 to %n step %c4 iter_args(%acc = %start) -> (tensor<4x4xf32>) {
// CHECK-NEXT:      %kj = tile.load %k[%j, %c0]
// CHECK-NEXT:      %s = tile.dot %qi, %kj
// CHECK-NEXT:      [[Y:%.*]] = arith.addf %acc, %s
// CHECK-NEXT:      scf.yield [[Y]]
// CHECK-NEXT:    } {made_by = "keep-state"}
// CHECK-NEXT:    tile.store [[R]], %o[%i, %c0]
// CHECK-NEXT:  }
