// RUN: not flashgen opt %s -p hoist-packs 2>&1 | filecheck %s
// Each query tile has keys of its own.

func.func @f(%q: memref<?x8xf32>, %k: memref<?x8xf32>, %o: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %Nq = memref.dim %q, %c0 : memref<?x8xf32>
  %Nk = memref.dim %k, %c0 : memref<?x8xf32>
  scf.for %i = %c0 to %Nq step %c4 {
    scf.for %j = %c0 to %Nk step %c4 {
      %kj = tile.load %k[%j, %i] : memref<?x8xf32> -> tensor<4x8xf32>
      %kp = tile.pack %kj transpose : tensor<4x8xf32> -> tensor<1x8x4xf32>
      %qi = tile.load %q[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
      %s = tile.dot %qi, %kp : tensor<4x8xf32>, tensor<1x8x4xf32> -> tensor<4x4xf32>
      tile.store %s, %o[%i, %j] : tensor<4x4xf32>, memref<?x8xf32>
    }
  }
  func.return
}

// CHECK: error: hoist-packs: tile.load: no loop around it reads the same tiles again
