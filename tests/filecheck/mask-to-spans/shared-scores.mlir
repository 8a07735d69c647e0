// RUN: flashgen opt %s -p mask-to-spans | filecheck %s
// Somebody else reads all columns of the product: it makes them all. The rest is as ever.

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>, %i: index, %j: index, %Nq: index, %Nk: index, %o: memref<?x8xf32>, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %x = tile.dot %q, %k transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  %all = tile.row_max %x : tensor<4x6xf32> -> tensor<4xf32>
  tile.store %all, %lse[%j] : tensor<4xf32>, memref<?xf32>
  %vis = tile.mask %i, %j {
  ^bb0(%row: index, %col: index):
    %a = arith.cmpi slt, %col, %Nk : index
    tile.yield %a : i1
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

// CHECK:       tile.dot %q, %k transpose :
// CHECK-NEXT:  %all = tile.row_max
// CHECK:       tile.row_span %i, %j
// CHECK:         tile.yield %j, %Nk
// CHECK:       %m = tile.row_max {{.*}} over %span
// CHECK-NOT:   tile.select
