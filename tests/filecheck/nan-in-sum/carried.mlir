// RUN: flashgen opt %s -p nan-in-sum | filecheck %s
// The weights' sum goes into a carried sum, which stays NaN once it is.

func.func @f(%s: tensor<4x6xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %nothing = tile.broadcast %zero : f32 -> tensor<4xf32>
  %l = scf.for %j = %c0 to %n step %c6 iter_args(%l_old = %nothing) -> (tensor<4xf32>) {
    %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
    %top = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
    %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
    %d = arith.subf %s, %wide : tensor<4x6xf32>
    %p = math.exp2 %d : tensor<4x6xf32>
    %l_tile = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
    %l_new = arith.addf %l_old, %l_tile : tensor<4xf32>
    scf.yield %l_new : tensor<4xf32>
  }
  func.return
}

// CHECK: %m = tile.row_max %s drop_nan {made_by = "nan-in-sum"} : tensor<4x6xf32> -> tensor<4xf32>
