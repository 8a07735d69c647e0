// RUN: not flashgen opt %s -p "pack{panel=4},narrow-products" 2>&1 | filecheck %s
// Panels of float32 are no pairs: what is packed is decided before.

func.func @f(%q: memref<?x8xbf16>, %k: memref<?x8xbf16>) {
  %c0 = arith.constant 0 : index
  %qi = tile.load %q[%c0, %c0] : memref<?x8xbf16> -> tensor<4x8xf32>
  %kj = tile.load %k[%c0, %c0] : memref<?x8xbf16> -> tensor<6x8xf32>
  %s = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  func.return
}

// CHECK: error: narrow-products: tile.dot: its right side is not a matrix as it was loaded
