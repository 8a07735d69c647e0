// RUN: flashgen opt %s -p 'split-keys{keys=12}' | filecheck %s
// K and V are the same for all r and i: each part of them is read for all rows, then every row's parts are merged.

func.func @f(%q: memref<?x?x8xf32>, %k: memref<?x8xf32>, %v: memref<?x8xf32>, %o: memref<?x?x8xf32>, %lse: memref<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %neg_inf = arith.constant 0xff800000 : f32
  %ln2_exact = arith.constant 0.69314718055994529 : f64
  %ln2 = arith.truncf %ln2_exact : f64 to f32
  %R = memref.dim %q, %c0 : memref<?x?x8xf32>
  %Nq = memref.dim %q, %c1 : memref<?x?x8xf32>
  %Nk = memref.dim %k, %c0 : memref<?x8xf32>
  scf.for %r = %c0 to %R step %c1 {
    scf.for %i = %c0 to %Nq step %c4 {
      %m0 = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
      %l0 = tile.broadcast %zero : f32 -> tensor<4xf32>
      %acc0 = tile.broadcast %zero : f32 -> tensor<4x8xf32>
      %qi = tile.load %q[%r, %i, %c0] : memref<?x?x8xf32> -> tensor<4x8xf32>
      %m, %l, %acc = scf.for %j = %c0 to %Nk step %c6 iter_args(%m_old = %m0, %l_old = %l0, %acc_old = %acc0)
          -> (tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>) {
        %kj = tile.load %k[%j, %c0] : memref<?x8xf32> -> tensor<6x8xf32>
        %vj = tile.load %v[%j, %c0] : memref<?x8xf32> -> tensor<6x8xf32>
        %s = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
        %m_tile = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
        %m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>
        %top = tile.replace %m_new, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
        %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
        %d = arith.subf %s, %wide : tensor<4x6xf32>
        %p = math.exp2 %d : tensor<4x6xf32>
        %l_tile = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
        %fall = arith.subf %m_old, %top : tensor<4xf32>
        %alpha = math.exp2 %fall : tensor<4xf32>
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
      tile.store %out, %o[%r, %i, %c0] : tensor<4x8xf32>, memref<?x?x8xf32>
      %m_safe = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
      %ln = math.log %l : tensor<4xf32>
      %ln2s = tile.broadcast %ln2 : f32 -> tensor<4xf32>
      %shift = arith.mulf %m_safe, %ln2s : tensor<4xf32>
      %sum = arith.addf %shift, %ln : tensor<4xf32>
      tile.store %sum, %lse[%r, %i] : tensor<4xf32>, memref<?x?xf32>
    }
  }
  func.return
}

// CHECK:       [[P:%[0-9]+]] = arith.constant 12 : index
// CHECK:       %parts = arith.ceildivsi %Nk, [[P]] {made_by = "split-keys"}
// CHECK-NEXT:  [[TILES:%[0-9]+]] = arith.ceildivsi %Nq, %c4
// CHECK-NEXT:  %whole_rows = arith.muli [[TILES]], %c4 {made_by = "split-keys"}
// CHECK-NEXT:  %m_old_parts = memref.alloc(%parts, %R, %whole_rows) {made_by = "split-keys"} : memref<?x?x?xf32>
// CHECK-NEXT:  %l_old_parts = memref.alloc(%parts, %R, %whole_rows) {made_by = "split-keys"} : memref<?x?x?xf32>
// CHECK-NEXT:  %acc_old_parts = memref.alloc(%parts, %R, %whole_rows) {made_by = "split-keys"} : memref<?x?x?x8xf32>
// CHECK-NEXT:  scf.for %part = %c0 to %parts step %c1 {
// CHECK-NEXT:    %part_from = arith.muli %part, [[P]] {made_by = "split-keys"}
// CHECK-NEXT:    [[END:%[0-9]+]] = arith.addi %part_from, [[P]]
// CHECK-NEXT:    %part_to = arith.minsi [[END]], %Nk {made_by = "split-keys"}
// CHECK-NEXT:    scf.for %r = %c0 to %R step %c1 {
// CHECK-NEXT:      scf.for %i = %c0 to %Nq step %c4 {
// CHECK:             %qi = tile.load %q
// CHECK-NEXT:        %m, %l, %acc = scf.for %j = %part_from to %part_to step %c6 iter_args
// CHECK:               tile.dot %qi, %kj transpose
// CHECK:             } {made_by = "split-keys"}
// CHECK-NEXT:        tile.store %m, %m_old_parts[%part, %r, %i] {made_by = "split-keys"}
// CHECK-NEXT:        tile.store %l, %l_old_parts[%part, %r, %i] {made_by = "split-keys"}
// CHECK-NEXT:        tile.store %acc, %acc_old_parts[%part, %r, %i, %c0] {made_by = "split-keys"}
// CHECK-NEXT:      } {made_by = "split-keys"}
// CHECK-NEXT:    } {made_by = "split-keys"}
// CHECK-NEXT:  } {made_by = "split-keys"}
// CHECK-NEXT:  scf.for %r_1 = %c0 to %R step %c1 {
// CHECK-NEXT:    scf.for %i_1 = %c0 to %Nq step %c4 {
// CHECK-NOT:       tile.load %q
// CHECK:           scf.for [[N:%part_[0-9]+]] = %c0 to %parts step %c1 iter_args
// CHECK-NEXT:        %m_old_part = tile.load %m_old_parts[[[N]], %r_1, %i_1] in_bounds
// CHECK-NEXT:        %l_old_part = tile.load %l_old_parts[[[N]], %r_1, %i_1] in_bounds
// CHECK-NEXT:        %acc_old_part = tile.load %acc_old_parts[[[N]], %r_1, %i_1, %c0] in_bounds
// CHECK-NEXT:        [[M:%m_[0-9]+]] = arith.maximumf {{%m_old_[0-9]+}}, %m_old_part
// CHECK-NEXT:        [[TOP:%top_[0-9]+]] = tile.replace [[M]], 0xff800000
// CHECK-NEXT:        [[FALL:%[0-9]+]] = arith.subf {{%m_old_[0-9]+}}, [[TOP]]
// CHECK-NEXT:        [[KEPT:%kept_[0-9]+]] = math.exp2 [[FALL]]
// CHECK-NEXT:        [[BELOW:%[0-9]+]] = arith.subf %m_old_part, [[TOP]]
// CHECK-NEXT:        %added = math.exp2 [[BELOW]]
// CHECK-NEXT:        arith.mulf {{%l_old_[0-9]+}}, [[KEPT]]
// CHECK-NEXT:        arith.mulf %l_old_part, %added
// CHECK-NEXT:        arith.addf
// CHECK:           tile.store %out, %o[%r_1, %i_1, %c0]
// CHECK:           tile.store %sum, %lse[%r_1, %i_1]
