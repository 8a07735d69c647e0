// RUN: not flashgen opt %s -p narrow-products 2>&1 | filecheck %s
// What memory holds as float32 would be rounded.

func.func @f(%q: memref<?x8xbf16>, %k: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %qi = tile.load %q[%c0, %c0] : memref<?x8xbf16> -> tensor<4x8xf32>
  %kj = tile.load %k[%c0, %c0] : memref<?x8xf32> -> tensor<6x8xf32>
  %s = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  func.return
}

// CHECK: error: narrow-products: tile.load: its array holds f32, and only bf16 loses nothing by not being widened
