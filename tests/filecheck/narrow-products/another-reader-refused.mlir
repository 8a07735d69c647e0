// RUN: not flashgen opt %s -p narrow-products 2>&1 | filecheck %s
// What else reads the query wants it widened.

func.func @f(%q: memref<?x8xbf16>, %k: memref<?x8xbf16>, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %qi = tile.load %q[%c0, %c0] : memref<?x8xbf16> -> tensor<4x8xf32>
  %kj = tile.load %k[%c0, %c0] : memref<?x8xbf16> -> tensor<6x8xf32>
  %s = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  %m = tile.row_max %qi : tensor<4x8xf32> -> tensor<4xf32>
  tile.store %m, %out[%c0] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK: error: narrow-products: tile.load: is read otherwise than as a side of products
