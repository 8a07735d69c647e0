// RUN: not flashgen opt %s -p hoist-packs 2>&1 | filecheck %s
// What is packed is computed: to pack it again elsewhere would be to compute it again.

func.func @f(%q: memref<?x8xf32>, %k: memref<?x8xf32>, %o: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %Nk = memref.dim %k, %c0 : memref<?x8xf32>
  scf.for %i = %c0 to %Nk step %c4 {
    scf.for %j = %c0 to %Nk step %c4 {
      %kj = tile.load %k[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
      %twice = arith.addf %kj, %kj : tensor<4x8xf32>
      %kp = tile.pack %twice transpose : tensor<4x8xf32> -> tensor<1x8x4xf32>
      %qi = tile.load %q[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
      %s = tile.dot %qi, %kp : tensor<4x8xf32>, tensor<1x8x4xf32> -> tensor<4x4xf32>
      tile.store %s, %o[%i, %j] : tensor<4x4xf32>, memref<?x8xf32>
    }
  }
  func.return
}

// CHECK: error: hoist-packs: tile.pack: packs what is not loaded
