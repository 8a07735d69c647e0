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
          %acc = memref.alloc(%Nq) : memref<?x8xf32>
          %m = memref.alloc(%Nq) : memref<?xf32>
          %l = memref.alloc(%Nq) : memref<?xf32>
          scf.for %i = %c0 to %Nq step %br {
            %1 = tile.broadcast %zero : f32 -> tensor<4x8xf32>
            tile.store %1, %acc[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>
            %2 = tile.broadcast %zero : f32 -> tensor<4xf32>
            tile.store %2, %l[%i] : tensor<4xf32>, memref<?xf32>
            %3 = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
            tile.store %3, %m[%i] : tensor<4xf32>, memref<?xf32>
            scf.for %j = %c0 to %Nk step %bc {
              %kj = tile.load %k[%b, %g, %j, %c0] {made_by = "sink-loads"} : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
              %vj = tile.load %v[%b, %g, %j, %c0] {made_by = "sink-loads"} : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
              %qi = tile.load %q[%b, %h, %i, %c0] : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
              %acc_i = tile.load %acc[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
              %l_i = tile.load %l[%i] : memref<?xf32> -> tensor<4xf32>
              %m_i = tile.load %m[%i] : memref<?xf32> -> tensor<4xf32>
              %4 = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x4xf32>
              %5 = tile.broadcast %scale : f32 -> tensor<4x4xf32>
              %6 = arith.mulf %4, %5 : tensor<4x4xf32>
              %visible = tile.mask %i, %j {
              ^bb0(%row: index, %col: index):
                %7 = arith.cmpi slt, %col, %Nk : index
                %8 = arith.cmpi slt, %row, %Nq : index
                %9 = arith.andi %7, %8 : i1
                %10 = arith.addi %row, %offset : index
                %11 = arith.cmpi sle, %col, %10 : index
                %12 = arith.andi %9, %11 : i1
                tile.yield %12 : i1
              } : tensor<4x4xi1>
              %13 = tile.broadcast %neg_inf : f32 -> tensor<4x4xf32>
              %s = tile.select %visible, %6, %13 : tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
              %m_tile = tile.row_max %s : tensor<4x4xf32> -> tensor<4xf32>
              %m_new = arith.maximumf %m_i, %m_tile : tensor<4xf32>
              %top = tile.replace %m_new, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
              %14 = tile.broadcast %top {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4x4xf32>
              %15 = arith.subf %s, %14 {made_by = "lazy-rescale"} : tensor<4x4xf32>
              %p = math.exp %15 {made_by = "lazy-rescale"} : tensor<4x4xf32>
              %l_tile = tile.row_sum %p {made_by = "lazy-rescale"} : tensor<4x4xf32> -> tensor<4xf32>
              %16 = arith.subf %m_i, %top : tensor<4xf32>
              %alpha = math.exp %16 : tensor<4xf32>
              %l_kept = arith.mulf %l_i, %alpha : tensor<4xf32>
              %l_new = arith.addf %l_kept, %l_tile : tensor<4xf32>
              %pv = tile.dot %p, %vj where %visible : tensor<4x4xi1> {made_by = "lazy-rescale"} : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
              %17 = tile.broadcast %alpha {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4x8xf32>
              %18 = arith.mulf %17, %acc_i {made_by = "lazy-rescale"} : tensor<4x8xf32>
              %acc_new = arith.addf %18, %pv : tensor<4x8xf32>
              tile.store %acc_new, %acc[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>
              tile.store %l_new, %l[%i] : tensor<4xf32>, memref<?xf32>
              tile.store %m_new, %m[%i] : tensor<4xf32>, memref<?xf32>
            } {made_by = "interchange"}
            %o_i = tile.load %acc[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
            %19 = tile.load %l[%i] {made_by = "lazy-rescale"} : memref<?xf32> -> tensor<4xf32>
            %divisor = tile.replace %19, 0.000000e+00 : f32, 1.000000e+00 : f32 {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4xf32>
            %20 = tile.broadcast %divisor {made_by = "lazy-rescale"} : tensor<4xf32> -> tensor<4x8xf32>
            %o_i_1 = arith.divf %o_i, %20 {made_by = "lazy-rescale"} : tensor<4x8xf32>
            tile.store %o_i_1, %o[%b, %h, %i, %c0] : tensor<4x8xf32>, memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
            %m_i_1 = tile.load %m[%i] : memref<?xf32> -> tensor<4xf32>
            %l_i_1 = tile.load %l[%i] : memref<?xf32> -> tensor<4xf32>
            %21 = tile.replace %m_i_1, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
            %22 = math.log %l_i_1 : tensor<4xf32>
            %lse_i = arith.addf %21, %22 : tensor<4xf32>
            tile.store %lse_i, %lse[%b, %h, %i] : tensor<4xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>
          } {made_by = "interchange, fuse-loops"}
        }
      }
    }
    func.return
  }
}
