// RUN: not flashgen opt %s -p "pack{panel=4}" 2>&1 | filecheck %s
// Keys that are queries too: the left side wants rows.

func.func @f(%k: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %kj = tile.load %k[%c0, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
  %s = tile.dot %kj, %kj transpose : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x4xf32>
  func.return
}

// CHECK: error: pack: tile.load: is read otherwise than as the right side of products
