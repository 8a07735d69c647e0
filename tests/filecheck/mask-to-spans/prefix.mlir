// RUN: flashgen opt %s -p mask-to-spans | filecheck %s
// A causal mask with a visible prefix is one interval, but the pass does not know: the span contains what is
// visible, mask, select and where stay and act within it.

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>, %i: index, %j: index, %Nq: index, %Nk: index, %o: memref<?x8xf32>, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %x = tile.dot %q, %k transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  %vis = tile.mask %i, %j {
  ^bb0(%row: index, %col: index):
    %a = arith.cmpi slt, %col, %Nk : index
    %b = arith.cmpi sle, %col, %row : index
    %ab = arith.ori %a, %b : i1
    tile.yield %ab : i1
  } : tensor<4x6xi1>
  %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %m = tile.row_max %s drop_nan : tensor<4x6xf32> -> tensor<4xf32>
  %top = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp2 %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  %y = tile.dot %p, %v where %vis : tensor<4x6xi1> : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  tile.store %y, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>
  tile.store %l, %lse[%i] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       %span = tile.row_span %i, %j {
// CHECK:         [[END:%.*]] = arith.addi %row, [[ONE:%.*]] :
// CHECK-NEXT:    [[HI:%.*]] = arith.maxsi %Nk, [[END]]
// CHECK-NEXT:    tile.yield %j, [[HI]]
// CHECK:       %x = tile.dot %q, %k transpose only %span
// CHECK-NEXT:  %vis = tile.mask %i, %j
// CHECK:       %s = tile.select %vis, %x, %hidden
// CHECK-NEXT:  %m = tile.row_max %s over %span : tensor<4x2xindex> drop_nan
// CHECK:       %l = tile.row_sum %p over %span
// CHECK-NEXT:  %y = tile.dot %p, %v where %vis : tensor<4x6xi1> zeros over %span
