// RUN: flashgen opt %s -p base-2 | filecheck %s
// Scores in float64: the two factors are float64 as they are stated, and nothing is rounded.

func.func @f(%x: tensor<4x6xf64>, %vis: tensor<4x6xi1>, %out: memref<?xf64>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xfff0000000000000 : f64
  %fill = tile.broadcast %neg_inf : f64 -> tensor<4x6xf64>
  %s = tile.select %vis, %x, %fill : tensor<4x6xi1>, tensor<4x6xf64>, tensor<4x6xf64> -> tensor<4x6xf64>
  %m = tile.row_max %s : tensor<4x6xf64> -> tensor<4xf64>
  %wide = tile.broadcast %m : tensor<4xf64> -> tensor<4x6xf64>
  %d = arith.subf %s, %wide : tensor<4x6xf64>
  %p = math.exp %d : tensor<4x6xf64>
  %l = tile.row_sum %p : tensor<4x6xf64> -> tensor<4xf64>
  %ln = math.log %l : tensor<4xf64>
  %lse = arith.addf %m, %ln : tensor<4xf64>
  tile.store %lse, %out[%c0] : tensor<4xf64>, memref<?xf64>
  func.return
}

// CHECK-DAG:   %log2e = arith.constant 1.4426950408889634 : f64
// CHECK-DAG:   %ln2 = arith.constant 0.69314718055994529 : f64
// CHECK-NOT:   arith.truncf
// CHECK:       [[WIDE:%.*]] = tile.broadcast %log2e
// CHECK-NEXT:  arith.mulf %x, [[WIDE]]
// CHECK:       math.exp2
// CHECK:       [[LN2:%.*]] = tile.broadcast %ln2
// CHECK-NEXT:  arith.mulf %m, [[LN2]]
