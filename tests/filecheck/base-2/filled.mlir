// RUN: flashgen opt %s -p base-2 | filecheck %s
// Where something else than -inf is selected, that is a score as well: the product comes behind the select.

func.func @f(%x: tensor<4x6xf32>, %vis: tensor<4x6xi1>, %floor: f32, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %fill = tile.broadcast %floor : f32 -> tensor<4x6xf32>
  %s = tile.select %vis, %x, %fill : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
  %wide = tile.broadcast %m : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  tile.store %l, %out[%c0] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       %s = tile.select %vis, %x, %fill
// CHECK-NEXT:  [[WIDE:%.*]] = tile.broadcast %log2e
// CHECK-NEXT:  [[S:%.*]] = arith.mulf %s, [[WIDE]]
// CHECK-NEXT:  %m = tile.row_max [[S]]
// CHECK:       %d = arith.subf [[S]], %wide
