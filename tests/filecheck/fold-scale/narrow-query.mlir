// RUN: flashgen opt %s -p fold-scale | filecheck %s
// Times a factor the query would be rounded to bfloat16: the factors of the result become one.

func.func @f(%q: memref<?x8xbf16>, %k: tensor<6x8xbf16>, %scale: f32, %n: index, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c = arith.constant 1.5 : f32
  scf.for %i = %c0 to %n step %c4 {
    %qi = tile.load %q[%i, %c0] : memref<?x8xbf16> -> tensor<4x8xbf16>
    %x = tile.dot %qi, %k transpose : tensor<4x8xbf16>, tensor<6x8xbf16> -> tensor<4x6xf32>
    %wide_scale = tile.broadcast %scale : f32 -> tensor<4x6xf32>
    %y = arith.mulf %x, %wide_scale : tensor<4x6xf32>
    %wide_c = tile.broadcast %c : f32 -> tensor<4x6xf32>
    %z = arith.mulf %wide_c, %y : tensor<4x6xf32>
    %m = tile.row_max %z : tensor<4x6xf32> -> tensor<4xf32>
    tile.store %m, %out[%i] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK:       %factor = arith.mulf %scale, %c {made_by = "fold-scale"} : f32
// CHECK-NEXT:  scf.for %i
// CHECK-NEXT:    %qi = tile.load %q[%i, %c0]
// CHECK-NEXT:    %x = tile.dot %qi, %k transpose
// CHECK-NEXT:    [[WIDE:%.*]] = tile.broadcast %factor
// CHECK-NEXT:    %z = arith.mulf %x, [[WIDE]]
// CHECK-NEXT:    %m = tile.row_max %z
