// RUN: flashgen opt %s -p "pack{panel=4}" | filecheck %s
// K is transposed while it is packed. V has 6 columns: its second panel is padded with two, of which the
// product's result knows nothing. Q is a left side, and stays.

func.func @f(%q: memref<?x8xf32>, %k: memref<?x8xf32>, %v: memref<?x6xf32>, %o: memref<?x6xf32>) {
  %c0 = arith.constant 0 : index
  %qi = tile.load %q[%c0, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
  %kj = tile.load %k[%c0, %c0] : memref<?x8xf32> -> tensor<8x8xf32>
  %vj = tile.load %v[%c0, %c0] : memref<?x6xf32> -> tensor<8x6xf32>
  %s = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
  %y = tile.dot %s, %vj : tensor<4x8xf32>, tensor<8x6xf32> -> tensor<4x6xf32>
  tile.store %y, %o[%c0, %c0] : tensor<4x6xf32>, memref<?x6xf32>
  func.return
}

// CHECK:       %qi = tile.load %q
// CHECK-NEXT:  %kj = tile.load %k
// CHECK-NEXT:  %kj_panels = tile.pack %kj transpose {made_by = "pack"} : tensor<8x8xf32> -> tensor<2x8x4xf32>
// CHECK-NEXT:  %vj = tile.load %v
// CHECK-NEXT:  %vj_panels = tile.pack %vj {made_by = "pack"} : tensor<8x6xf32> -> tensor<2x8x4xf32>
// CHECK-NEXT:  %s = tile.dot %qi, %kj_panels {{.*}} : tensor<4x8xf32>, tensor<2x8x4xf32> -> tensor<4x8xf32>
// CHECK-NEXT:  %y = tile.dot %s, %vj_panels {{.*}} : tensor<4x8xf32>, tensor<2x8x4xf32> -> tensor<4x6xf32>
