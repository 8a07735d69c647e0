// RUN: flashgen opt %s -p mask-to-spans | filecheck %s
// A causal mask with both tails is an interval in every row: the mask, the select and the where go.

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>, %i: index, %j: index, %Nq: index, %Nk: index, %o: memref<?x8xf32>, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %offset = arith.subi %Nk, %Nq : index
  %x = tile.dot %q, %k transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  %vis = tile.mask %i, %j {
  ^bb0(%row: index, %col: index):
    %a = arith.cmpi slt, %col, %Nk : index
    %b = arith.cmpi slt, %row, %Nq : index
    %ab = arith.andi %a, %b : i1
    %position = arith.addi %row, %offset : index
    %c = arith.cmpi sle, %col, %position : index
    %abc = arith.andi %ab, %c : i1
    tile.yield %abc : i1
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

// CHECK:       %offset = arith.subi %Nk, %Nq
// CHECK-NEXT:  %span = tile.row_span %i, %j {
// CHECK-NEXT:  ^bb0(%row: index):
// CHECK-NEXT:    [[P:%.*]] = arith.addi %row, %offset
// CHECK-NEXT:    [[END:%.*]] = arith.addi [[P]], [[ONE:%.*]] :
// CHECK-NEXT:    [[HI:%.*]] = arith.minsi %Nk, [[END]]
// CHECK-NEXT:    [[IN:%.*]] = arith.cmpi slt, %row, %Nq
// CHECK-NEXT:    [[STOP:%.*]] = arith.select [[IN]], [[HI]], %j
// CHECK-NEXT:    tile.yield %j, [[STOP]]
// CHECK-NEXT:  } of 6 : index {made_by = "mask-to-spans"} : tensor<4x2xindex>
// CHECK-NEXT:  %s = tile.dot %q, %k transpose only %span
// CHECK-NEXT:  %m = tile.row_max %s over %span : tensor<4x2xindex> drop_nan
// CHECK:       %d = arith.subf %s, %wide
// CHECK:       %l = tile.row_sum %p over %span
// CHECK-NEXT:  %y = tile.dot %p, %v over %span : tensor<4x2xindex> {{.*}} : tensor<4x6xf32>
// CHECK-NOT:   tile.mask
// CHECK-NOT:   where
