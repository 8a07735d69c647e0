// RUN: flashgen opt %s -p mask-to-spans | filecheck %s
// A bias by position is wanted within the span alone, and so is what an array says, which no span can say; what
// the score itself hides stays a mask beside it.

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x8xf32>, %i: index, %j: index, %Nk: index, %a: memref<?x?xf32>, %w: memref<?x?xi1>, %o: memref<?x8xf32>, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %x = tile.dot %q, %k transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  %bias = tile.mask %i, %j {
  ^bb0(%row: index, %col: index):
    %e = tile.element %a[%row, %col] : memref<?x?xf32> -> f32
    tile.yield %e : f32
  } : tensor<4x6xf32>
  %t = arith.addf %x, %bias : tensor<4x6xf32>
  %vis = tile.mask %i, %j {
  ^bb0(%row: index, %col: index):
    %in = arith.cmpi slt, %col, %Nk : index
    %e = tile.element %w[%row, %col] : memref<?x?xi1> -> i1
    %both = arith.andi %in, %e : i1
    tile.yield %both : i1
  } : tensor<4x6xi1>
  %finite = tile.compare une, %t, %hidden : tensor<4x6xf32> -> tensor<4x6xi1>
  %seen = arith.andi %vis, %finite : tensor<4x6xi1>
  %s = tile.select %seen, %t, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %m = tile.row_max %s drop_nan : tensor<4x6xf32> -> tensor<4xf32>
  %top = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp2 %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  %y = tile.dot %p, %v where %seen : tensor<4x6xi1> : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  tile.store %y, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>
  tile.store %l, %lse[%i] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       %span = tile.row_span %i, %j {
// CHECK:         tile.yield %j, %Nk
// CHECK:       %x = tile.dot %q, %k transpose only %span
// CHECK-NEXT:  %bias = tile.mask %i, %j {
// CHECK:       } over %span : tensor<4x2xindex> {{.*}}: tensor<4x6xf32>
// CHECK:       %vis = tile.mask %i, %j {
// CHECK:       } over %span : tensor<4x2xindex> {{.*}}: tensor<4x6xi1>
// CHECK:       %s = tile.select %seen, %t, %hidden
// CHECK:       %y = tile.dot %p, %v where %seen : tensor<4x6xi1> zeros over %span
