// RUN: flashgen opt %s -p narrow-products | filecheck %s
// Q, K and V are not widened, and P is rounded for its product alone: its row sum is that of P before.

func.func @f(%q: memref<?x8xbf16>, %k: memref<?x8xbf16>, %v: memref<?x5xbf16>, %o: memref<?x5xf32>, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %qi = tile.load %q[%c0, %c0] : memref<?x8xbf16> -> tensor<4x8xf32>
  %kj = tile.load %k[%c0, %c0] in_bounds : memref<?x8xbf16> -> tensor<6x8xf32>
  %s = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  %p = math.exp2 %s : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  tile.store %l, %out[%c0] : tensor<4xf32>, memref<?xf32>
  %vj = tile.load %v[%c0, %c0] : memref<?x5xbf16> -> tensor<6x5xf32>
  %y = tile.dot %p, %vj : tensor<4x6xf32>, tensor<6x5xf32> -> tensor<4x5xf32>
  tile.store %y, %o[%c0, %c0] : tensor<4x5xf32>, memref<?x5xf32>
  func.return
}

// CHECK:       %qi = tile.load %q[%c0, %c0] {made_by = "narrow-products"} : memref<?x8xbf16> -> tensor<4x8xbf16>
// CHECK-NEXT:  %kj = tile.load %k[%c0, %c0] in_bounds {made_by = "narrow-products"} : memref<?x8xbf16> -> tensor<6x8xbf16>
// CHECK-NEXT:  %s = tile.dot %qi, %kj transpose : tensor<4x8xbf16>, tensor<6x8xbf16> -> tensor<4x6xf32>
// CHECK-NEXT:  %p = math.exp2 %s
// CHECK-NEXT:  %l = tile.row_sum %p
// CHECK-NEXT:  tile.store %l
// CHECK-NEXT:  %vj = tile.load {{.*}} -> tensor<6x5xbf16>
// CHECK-NEXT:  %p_narrow = arith.truncf %p {made_by = "narrow-products"} : tensor<4x6xf32> to tensor<4x6xbf16>
// CHECK-NEXT:  %y = tile.dot %p_narrow, %vj : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xf32>
