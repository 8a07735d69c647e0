// RUN: not flashgen opt %s -p skip-tiles 2>&1 | filecheck %s
// A row sum that counts a masked tile as something would miss the tiles that are skipped.

func.func @head(
    %q: memref<?x8xf32> {tile.extents = ["Nq", "D"]}, %k: memref<?x8xf32> {tile.extents = ["Nk", "D"]},
    %v: memref<?x8xf32> {tile.extents = ["Nk", "D"]}, %o: memref<?x8xf32> {tile.extents = ["Nq", "D"]}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %neg_inf = arith.constant 0xff800000 : f32
  %nq = memref.dim %q, %c0 : memref<?x8xf32>
  %nk = memref.dim %k, %c0 : memref<?x8xf32>
  %acc = memref.alloc(%nq) : memref<?x8xf32>
  %m = memref.alloc(%nq) : memref<?xf32>
  %l = memref.alloc(%nq) : memref<?xf32>
  scf.for %i0 = %c0 to %nq step %c4 {
    %acc_start = tile.broadcast %zero : f32 -> tensor<4x8xf32>
    %l_start = tile.broadcast %zero : f32 -> tensor<4xf32>
    %m_start = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
    tile.store %acc_start, %acc[%i0, %c0] : tensor<4x8xf32>, memref<?x8xf32>
    tile.store %l_start, %l[%i0] : tensor<4xf32>, memref<?xf32>
    tile.store %m_start, %m[%i0] : tensor<4xf32>, memref<?xf32>
  }
  scf.for %j = %c0 to %nk step %c4 {
    %kj = tile.load %k[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
    %vj = tile.load %v[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
    scf.for %i = %c0 to %nq step %c4 {
      %qi = tile.load %q[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
      %acc_old = tile.load %acc[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
      %l_old = tile.load %l[%i] : memref<?xf32> -> tensor<4xf32>
      %m_old = tile.load %m[%i] : memref<?xf32> -> tensor<4xf32>
      %x = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x4xf32>
      %vis = tile.mask %i, %j {
      ^bb0(%row: index, %col: index):
        %in = arith.cmpi slt, %col, %nk : index
        %low = arith.cmpi sle, %col, %row : index
        %see = arith.andi %in, %low : i1
        tile.yield %see : i1
      } : tensor<4x4xi1>
      %none = tile.broadcast %neg_inf : f32 -> tensor<4x4xf32>
      %s = tile.select %vis, %x, %none : tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
      %m_tile = tile.row_max %s : tensor<4x4xf32> -> tensor<4xf32>
      %m_safe = tile.replace %m_tile, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
      %m_wide = tile.broadcast %m_safe : tensor<4xf32> -> tensor<4x4xf32>
      %d = arith.subf %s, %m_wide : tensor<4x4xf32>
      %p = math.exp %d : tensor<4x4xf32>
      %l_tile = tile.row_sum %p : tensor<4x4xf32> -> tensor<4xf32>
      %m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>
      %top = tile.replace %m_new, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
      %fall = arith.subf %m_old, %top : tensor<4xf32>
      %alpha = math.exp %fall : tensor<4xf32>
      %lag = arith.subf %m_tile, %top : tensor<4xf32>
      %beta = math.exp %lag : tensor<4xf32>
      %l_kept = arith.mulf %l_old, %alpha : tensor<4xf32>
      %l_add = arith.mulf %beta, %l_tile : tensor<4xf32>
      %l_new = arith.addf %l_old, %l_old : tensor<4xf32>
      %pv = tile.dot %p, %vj where %vis : tensor<4x4xi1> : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
      %kept_wide = tile.broadcast %l_kept : tensor<4xf32> -> tensor<4x8xf32>
      %kept = arith.mulf %kept_wide, %acc_old : tensor<4x8xf32>
      %beta_wide = tile.broadcast %beta : tensor<4xf32> -> tensor<4x8xf32>
      %fresh = arith.mulf %beta_wide, %pv : tensor<4x8xf32>
      %total = arith.addf %kept, %fresh : tensor<4x8xf32>
      %l_safe = tile.replace %l_new, 0.0 : f32, 1.0 : f32 : tensor<4xf32> -> tensor<4xf32>
      %l_wide = tile.broadcast %l_safe : tensor<4xf32> -> tensor<4x8xf32>
      %acc_new = arith.divf %total, %l_wide : tensor<4x8xf32>
      tile.store %acc_new, %acc[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>
      tile.store %l_new, %l[%i] : tensor<4xf32>, memref<?xf32>
      tile.store %m_new, %m[%i] : tensor<4xf32>, memref<?xf32>
    }
  }
  scf.for %i1 = %c0 to %nq step %c4 {
    %acc_end = tile.load %acc[%i1, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
    tile.store %acc_end, %o[%i1, %c0] : tensor<4x8xf32>, memref<?x8xf32>
  }
  func.return
}

// CHECK: error: skip-tiles: arith.addf: is changed by a tile that shows nothing, or is not known not to be
