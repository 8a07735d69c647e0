builtin.module {
  func.func @attention(%q: memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> {tile.extents = ["B", "Hq", "Nq", "D"]}, %k: memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> {tile.extents = ["B", "Hkv", "Nk", "D"]}, %v: memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> {tile.extents = ["B", "Hkv", "Nk", "Dv"]}, %o: memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> {tile.extents = ["B", "Hq", "Nq", "Dv"]}, %lse: memref<?x?x?xf32, strided<[?, ?, ?]>> {tile.extents = ["B", "Hq", "Nq"]}, %scale: f32) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %br = arith.constant 4 : index
    %bc = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    %neg_inf = arith.constant 0xff800000 : f32
    %B = memref.dim %q, %c0 : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
    %Hq = memref.dim %q, %c1 : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
    %Hkv = memref.dim %k, %c1 : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
    %Nq = memref.dim %q, %c2 : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
    %Nk = memref.dim %k, %c2 : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
    %offset = arith.subi %Nk, %Nq : index
    %group = arith.floordivsi %Hq, %Hkv : index
    scf.for %b = %c0 to %B step %c1 {
      scf.for %g = %c0 to %Hkv step %c1 {
        %0 = arith.muli %g, %group : index
        scf.for %r = %c0 to %group step %c1 {
          %h = arith.addi %0, %r : index
          scf.for %i = %c0 to %Nq step %br {
            %acc_start = tile.broadcast %zero : f32 -> tensor<4x8xf32>
            %l_start = tile.broadcast %zero : f32 -> tensor<4xf32>
            %m_start = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
            %qi = tile.load %q[%b, %h, %i, %c0] : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
            %acc_new, %l_new, %m_new = scf.for %j = %c0 to %Nk step %bc iter_args(%acc = %acc_start, %l = %l_start, %m = %m_start) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) {
              %kj = tile.load %k[%b, %g, %j, %c0] {made_by = "sink-loads"} : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
              %vj = tile.load %v[%b, %g, %j, %c0] {made_by = "sink-loads"} : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
              %1 = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x4xf32>
              %2 = tile.broadcast %scale : f32 -> tensor<4x4xf32>
              %3 = arith.mulf %1, %2 : tensor<4x4xf32>
              %visible = tile.mask %i, %j {
              ^bb0(%row: index, %col: index):
                %4 = arith.cmpi slt, %col, %Nk : index
                %5 = arith.cmpi slt, %row, %Nq : index
                %6 = arith.andi %4, %5 : i1
                %7 = arith.addi %row, %offset : index
                %8 = arith.cmpi sle, %col, %7 : index
                %9 = arith.andi %6, %8 : i1
                tile.yield %9 : i1
              } : tensor<4x4xi1>
              %10 = tile.broadcast %neg_inf : f32 -> tensor<4x4xf32>
              %s = tile.select %visible, %3, %10 : tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
              %m_tile = tile.row_max %s : tensor<4x4xf32> -> tensor<4xf32>
              %m_new_1 = arith.maximumf %m, %m_tile : tensor<4xf32>
              %top = tile.replace %m_new_1, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
              %11 = tile.broadcast %top {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4x4xf32>
              %12 = arith.subf %s, %11 {made_by = "lazy-rescale"} : tensor<4x4xf32>
              %p = math.exp %12 {made_by = "lazy-rescale"} : tensor<4x4xf32>
              %l_tile = tile.row_sum %p {made_by = "lazy-rescale"} : tensor<4x4xf32> -> tensor<4xf32>
              %13 = arith.subf %m, %top : tensor<4xf32>
              %alpha = math.exp %13 : tensor<4xf32>
              %l_kept = arith.mulf %l, %alpha : tensor<4xf32>
              %l_new_1 = arith.addf %l_kept, %l_tile : tensor<4xf32>
              %pv = tile.dot %p, %vj where %visible : tensor<4x4xi1> {made_by = "lazy-rescale"} : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
              %14 = tile.broadcast %alpha {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4x8xf32>
              %15 = arith.mulf %14, %acc {made_by = "lazy-rescale"} : tensor<4x8xf32>
              %acc_new_1 = arith.addf %15, %pv : tensor<4x8xf32>
              scf.yield %acc_new_1, %l_new_1, %m_new_1 : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>
            } {made_by = "interchange, keep-state"}
            %divisor = tile.replace %l_new, 0.000000e+00 : f32, 1.000000e+00 : f32 {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4xf32>
            %16 = tile.broadcast %divisor {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4x8xf32>
            %o_i = arith.divf %acc_new, %16 {made_by = "lazy-rescale"} : tensor<4x8xf32>
            tile.store %o_i, %o[%b, %h, %i, %c0] : tensor<4x8xf32>, memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
            %17 = tile.replace %m_new, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
            %18 = math.log %l_new : tensor<4xf32>
            %lse_i = arith.addf %17, %18 : tensor<4xf32>
            tile.store %lse_i, %lse[%b, %h, %i] : tensor<4xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>
          } {made_by = "interchange, fuse-loops"}
        }
      }
    }
    func.return
  }
}
