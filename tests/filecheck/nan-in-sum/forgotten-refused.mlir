// RUN: not flashgen opt %s -p nan-in-sum 2>&1 | filecheck %s
// Each iteration's sum replaces the one before: a NaN would be gone.

func.func @f(%s: tensor<4x6xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %nothing = tile.broadcast %zero : f32 -> tensor<4xf32>
  %l = scf.for %j = %c0 to %n step %c6 iter_args(%l_old = %nothing) -> (tensor<4xf32>) {
    %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
    %wide = tile.broadcast %m : tensor<4xf32> -> tensor<4x6xf32>
    %d = arith.subf %s, %wide : tensor<4x6xf32>
    %p = math.exp2 %d : tensor<4x6xf32>
    %l_tile = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
    scf.yield %l_tile : tensor<4xf32>
  }
  func.return
}

// CHECK: error: nan-in-sum: tile.row_max: the row sum of its weights reaches no state that keeps a NaN
