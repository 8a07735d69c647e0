// RUN: not flashgen opt %s -p keep-state 2>&1 | filecheck %s
// A float16 workspace rounds in every iteration; a carried value would not.

func.func @f(%k: memref<?x4xf32>, %q: memref<?x4xf32> {tile.extents = ["Nq", "D"]},
    %o: memref<?x4xf32> {tile.extents = ["Nq", "D"]}, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %nq = memref.dim %q, %c0 : memref<?x4xf32>
  %acc = memref.alloc(%nq) : memref<?x4xf16>
  scf.for %i = %c0 to %nq step %c4 {
    %start = tile.broadcast %zero : f32 -> tensor<4x4xf32>
    tile.store %start, %acc[%i, %c0] : tensor<4x4xf32>, memref<?x4xf16>
    scf.for %j = %c0 to %n step %c4 {
      %qi = tile.load %q[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      %kj = tile.load %k[%j, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      %x = tile.load %acc[%i, %c0] : memref<?x4xf16> -> tensor<4x4xf32>
      %s = tile.dot %qi, %kj : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
      %y = arith.addf %x, %s : tensor<4x4xf32>
      tile.store %y, %acc[%i, %c0] : tensor<4x4xf32>, memref<?x4xf16>
    }
    %end = tile.load %acc[%i, %c0] : memref<?x4xf16> -> tensor<4x4xf32>
    tile.store %end, %o[%i, %c0] : tensor<4x4xf32>, memref<?x4xf32>
  }
  func.return
}

// CHECK: error: keep-state: tile.store: %acc rounds what it stores; a carried value would not
