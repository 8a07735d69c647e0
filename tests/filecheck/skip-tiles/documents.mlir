// RUN: flashgen opt %s -p sink-loads,interchange,fuse-loops,keep-state,skip-tiles | filecheck %s
// Documents: a tile is left out where the numbers of its rows and of its keys cannot meet, and runs without a
// mask where all of them are one number. What is asked of the rows stands in front of the loop over keys.
func.func @head(
    %q: memref<?x8xf32> {tile.extents = ["Nq", "D"]}, %k: memref<?x8xf32> {tile.extents = ["Nk", "D"]},
    %v: memref<?x8xf32> {tile.extents = ["Nk", "D"]}, %o: memref<?x8xf32> {tile.extents = ["Nq", "D"]}, %ids: memref<?xi32>) {
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
        %mine = tile.element %ids[%row] : memref<?xi32> -> index
        %theirs = tile.element %ids[%col] : memref<?xi32> -> index
        %low = arith.cmpi eq, %mine, %theirs : index
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
      %l_new = arith.addf %l_kept, %l_add : tensor<4xf32>
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

// CHECK:       %ids_least, %ids_greatest = tile.extremes %ids[%i0] to[%last_row]
// CHECK-NEXT:  {{.*}} = scf.for %j = %c0 to %nk step %c4 iter_args(%acc = %acc_start, %l = %l_start, %m = %m_start)
// CHECK:         %ids_least_1, %ids_greatest_1 = tile.extremes %ids[%j] to[%last_col]
// CHECK:         %may_show = arith.andi
// CHECK:         %shows_all = arith.andi
// CHECK-NEXT:    {{.*}} = scf.if %may_show
// CHECK-NEXT:      {{.*}} = scf.if %shows_all
// CHECK-NEXT:        %kj = tile.load %k[%j, %c0] in_bounds
// CHECK-NOT:         tile.mask
// CHECK:             %pv = tile.dot %p, %vj {
// CHECK:           } else {
// CHECK:             %vis = tile.mask %i0, %j {
// CHECK:             where %vis
// CHECK:         } else {
// CHECK-NEXT:      scf.yield %acc, %l, %m
