// RUN: not flashgen opt %s -p base-2 2>&1 | filecheck %s
// A maximum that starts at a sink: the sink would have to be multiplied too.

func.func @f(%x: tensor<4x6xf32>, %sink: f32, %n: index) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %first = tile.broadcast %sink : f32 -> tensor<4xf32>
  %m = scf.for %j = %c0 to %n step %c6 iter_args(%m_old = %first) -> (tensor<4xf32>) {
    %m_tile = tile.row_max %x : tensor<4x6xf32> -> tensor<4xf32>
    %m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>
    %top = tile.replace %m_new, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
    scf.yield %m_new : tensor<4xf32>
  }
  func.return
}

// CHECK: error: base-2: scf.for: what meets a score here is not one, nor -inf, so it must not be multiplied
