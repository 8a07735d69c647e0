// RUN: flashgen opt %s -p mask-to-spans | filecheck %s
// The product stands above the loop in which the mask moves: it makes all columns, once.

func.func @f(%q: tensor<4x8xf32>, %k: tensor<6x8xf32>, %n: index, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %x = tile.dot %q, %k transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
  scf.for %j = %c0 to %n step %c6 {
    %vis = tile.mask %c0, %j {
    ^bb0(%row: index, %col: index):
      %a = arith.cmpi slt, %col, %n : index
      tile.yield %a : i1
    } : tensor<4x6xi1>
    %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
    %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
    tile.store %m, %out[%j] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK:       tile.dot %q, %k transpose :
// CHECK-NEXT:  scf.for %j
// CHECK-NEXT:    %span = tile.row_span %c0, %j
// CHECK:         %m = tile.row_max {{.*}} over %span
