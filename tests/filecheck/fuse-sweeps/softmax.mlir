// RUN: flashgen opt %s -p fuse-sweeps | filecheck %s
// Two sweeps. The masked scores are read again by the second; the weights by a product.

func.func @f(%x: tensor<4x6xf32>, %vis: tensor<4x6xi1>, %v: tensor<6x8xf32>, %o: memref<?x8xf32>, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
  %top = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp2 %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  %y = tile.dot %p, %v where %vis : tensor<4x6xi1> : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  tile.store %y, %o[%c0, %c0] : tensor<4x8xf32>, memref<?x8xf32>
  tile.store %l, %lse[%c0] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       %s, %m = tile.sweep %vis, %x reduce "max" {
// CHECK-NEXT:  ^bb0([[VIS:%.*]]: i1, [[X:%.*]]: f32):
// CHECK-NEXT:    [[S:%.*]] = arith.select [[VIS]], [[X]], %neg_inf : f32
// CHECK-NEXT:    tile.yield [[S]], [[S]] : f32, f32
// CHECK:       } {made_by = "fuse-sweeps"} : (tensor<4x6xi1>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>)
// CHECK-NEXT:  %top = tile.replace %m
// CHECK-NEXT:  %p, %l = tile.sweep %s, %top reduce "add" {
// CHECK-NEXT:  ^bb0([[S:%.*]]: f32, [[TOP:%.*]]: f32):
// CHECK-NEXT:    [[D:%.*]] = arith.subf [[S]], [[TOP]] : f32
// CHECK-NEXT:    [[P:%.*]] = math.exp2 [[D]] : f32
// CHECK-NEXT:    tile.yield [[P]], [[P]] : f32, f32
// CHECK:       %y = tile.dot %p, %v where %vis
