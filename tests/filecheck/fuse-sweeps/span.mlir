// RUN: flashgen opt %s -p fuse-sweeps | filecheck %s
// A reduction over a span becomes a sweep over it; one that may drop NaN says so; one operand is enough.

func.func @f(%s: tensor<4x6xf32>, %span: tensor<4x2xindex>, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %m = tile.row_max %s over %span : tensor<4x2xindex> drop_nan : tensor<4x6xf32> -> tensor<4xf32>
  tile.store %m, %lse[%c0] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       %m = tile.sweep %s over %span : tensor<4x2xindex> reduce "maxnum" {
// CHECK-NEXT:  ^bb0([[S:%.*]]: f32):
// CHECK-NEXT:    tile.yield [[S]] : f32
// CHECK-NEXT:  } {made_by = "fuse-sweeps"} : (tensor<4x6xf32>) -> (tensor<4xf32>)
// CHECK-NEXT:  tile.store %m
