// RUN: flashgen opt %s -p base-2 | filecheck %s
// An exponential of anything but scores stays, for the factor of scores is not in it.

func.func @f(%x: tensor<4x6xf32>, %r: tensor<4xf32>, %vis: tensor<4x6xi1>, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %fill = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %s = tile.select %vis, %x, %fill : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
  %wide = tile.broadcast %m : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  %e = math.exp %r : tensor<4xf32>
  %total = arith.addf %l, %e : tensor<4xf32>
  tile.store %total, %out[%c0] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       %p = math.exp2
// CHECK:       %e = math.exp %r
// CHECK-NOT:   math.exp2
