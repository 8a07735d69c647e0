// RUN: flashgen opt %s -p base-2 | filecheck %s
// A maximum and a sum that a loop carries; lse is made behind the loop.

func.func @f(%x: tensor<4x6xf32>, %vis: tensor<4x6xi1>, %n: index, %lse: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %none = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
  %nothing = tile.broadcast %zero : f32 -> tensor<4xf32>
  %l, %m = scf.for %j = %c0 to %n step %c6 iter_args(%l_old = %nothing, %m_old = %none) -> (tensor<4xf32>, tensor<4xf32>) {
    %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
    %m_tile = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
    %m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>
    %top = tile.replace %m_new, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
    %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
    %d = arith.subf %s, %wide : tensor<4x6xf32>
    %p = math.exp %d : tensor<4x6xf32>
    %l_tile = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
    %drop = arith.subf %m_old, %top : tensor<4xf32>
    %alpha = math.exp %drop : tensor<4xf32>
    %kept = arith.mulf %l_old, %alpha : tensor<4xf32>
    %l_new = arith.addf %kept, %l_tile : tensor<4xf32>
    scf.yield %l_new, %m_new : tensor<4xf32>, tensor<4xf32>
  }
  %last = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %log = math.log %l : tensor<4xf32>
  %sum = arith.addf %last, %log : tensor<4xf32>
  tile.store %sum, %lse[%c0] : tensor<4xf32>, memref<?xf32>
  func.return
}

// CHECK:       [[E:%.*]] = arith.constant 1.4426950408889634 : f64
// CHECK:       [[TWO:%.*]] = arith.constant 0.69314718055994529 : f64
// CHECK:       %log2e = arith.truncf [[E]] {made_by = "base-2"} : f64 to f32
// CHECK:       %ln2 = arith.truncf [[TWO]] {made_by = "base-2"} : f64 to f32
// CHECK:       [[WIDE:%.*]] = tile.broadcast %log2e
// CHECK-NEXT:  [[X:%.*]] = arith.mulf %x, [[WIDE]]
// CHECK:       %l, %m = scf.for
// CHECK:         %s = tile.select %vis, [[X]], %hidden
// CHECK:         %d = arith.subf %s, %wide
// CHECK-NEXT:    %p = math.exp2 %d
// CHECK:         %alpha = math.exp2 %drop
// CHECK-NOT:     math.exp %
// CHECK:       %last = tile.replace %m
// CHECK-NEXT:  %log = math.log %l
// CHECK-NEXT:  [[LN:%.*]] = tile.broadcast %ln2
// CHECK-NEXT:  [[M:%.*]] = arith.mulf %last, [[LN]]
// CHECK-NEXT:  %sum = arith.addf [[M]], %log
