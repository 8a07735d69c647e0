// RUN: flashgen opt %s -p base-2 | filecheck %s
// FlashAttention-1's form: the maximum is in memory and starts at -inf there; beta is an exp2 as well.

func.func @f(%x: tensor<4x6xf32>, %vis: tensor<4x6xi1>, %n: index, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %none = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
  %m = memref.alloc(%n) : memref<?xf32>
  scf.for %i = %c0 to %n step %c4 {
    tile.store %none, %m[%i] : tensor<4xf32>, memref<?xf32>
  }
  scf.for %i = %c0 to %n step %c4 {
    %m_old = tile.load %m[%i] : memref<?xf32> -> tensor<4xf32>
    %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
    %m_tile = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
    %m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>
    %top = tile.replace %m_new, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
    %drop = arith.subf %m_tile, %top : tensor<4xf32>
    %beta = math.exp %drop : tensor<4xf32>
    tile.store %beta, %out[%i] : tensor<4xf32>, memref<?xf32>
    tile.store %m_new, %m[%i] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK:       tile.store %none, %m[%i]
// CHECK:       tile.select %vis, [[X:%[0-9]+]], %hidden
// CHECK:       %beta = math.exp2 %drop
// CHECK-NOT:   math.exp %
// CHECK:       tile.store %m_new, %m
