// RUN: not flashgen opt %s -p 'rescale-threshold{threshold=8}' 2>&1 | filecheck %s
// The threshold is in units of log2, these scores are not.

func.func @f(%x: memref<?x6xf32>, %v: memref<?x8xf32>, %o: memref<4x8xf32>, %lse: memref<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %neg_inf = arith.constant 0xff800000 : f32
  %ln2_exact = arith.constant 0.69314718055994529 : f64
  %ln2 = arith.truncf %ln2_exact : f64 to f32
  %m0 = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
  %l0 = tile.broadcast %zero : f32 -> tensor<4xf32>
  %acc0 = tile.broadcast %zero : f32 -> tensor<4x8xf32>
  %m, %l, %acc = scf.for %j = %c0 to %n step %c6 iter_args(%m_old = %m0, %l_old = %l0, %acc_old = %acc0)
      -> (tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>) {
    %s = tile.load %x[%j, %c0] : memref<?x6xf32> -> tensor<4x6xf32>
    %vj = tile.load %v[%j, %c0] : memref<?x8xf32> -> tensor<6x8xf32>
    %m_tile = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
    %m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>
    %top = tile.replace %m_new, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
    %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
    %d = arith.subf %s, %wide : tensor<4x6xf32>
    %p = math.exp %d : tensor<4x6xf32>
    %l_tile = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
    %fall = arith.subf %m_old, %top : tensor<4xf32>
    %alpha = math.exp %fall : tensor<4xf32>
    %l_kept = arith.mulf %l_old, %alpha : tensor<4xf32>
    %l_new = arith.addf %l_kept, %l_tile : tensor<4xf32>
    %pv = tile.dot %p, %vj : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
    %alpha_wide = tile.broadcast %alpha : tensor<4xf32> -> tensor<4x8xf32>
    %kept = arith.mulf %alpha_wide, %acc_old : tensor<4x8xf32>
    %acc_new = arith.addf %kept, %pv : tensor<4x8xf32>
    scf.yield %m_new, %l_new, %acc_new : tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>
  }
  %divisor = tile.replace %l, 0.0 : f32, 1.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %divisors = tile.broadcast %divisor : tensor<4xf32> -> tensor<4x8xf32>
  %out = arith.divf %acc, %divisors : tensor<4x8xf32>
  tile.store %out, %o[%c0, %c0] : tensor<4x8xf32>, memref<4x8xf32>
  %m_safe = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %ln = math.log %l : tensor<4xf32>
  %ln2s = tile.broadcast %ln2 : f32 -> tensor<4xf32>
  %shift = arith.mulf %m_safe, %ln2s : tensor<4xf32>
  %sum = arith.addf %shift, %ln : tensor<4xf32>
  tile.store %sum, %lse[%c0] : tensor<4xf32>, memref<4xf32>
  func.return
}

// CHECK: error: rescale-threshold: arith.subf: is no exponent of base 2: run base-2 before
