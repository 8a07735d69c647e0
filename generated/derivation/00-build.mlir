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
          }
          scf.for %j = %c0 to %Nk step %bc {
            %kj = tile.load %k[%b, %g, %j, %c0] : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
            %vj = tile.load %v[%b, %g, %j, %c0] : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
            scf.for %i_1 = %c0 to %Nq step %br {
              %qi = tile.load %q[%b, %h, %i_1, %c0] : memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>> -> tensor<4x8xf32>
              %acc_i = tile.load %acc[%i_1, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
              %l_i = tile.load %l[%i_1] : memref<?xf32> -> tensor<4xf32>
              %m_i = tile.load %m[%i_1] : memref<?xf32> -> tensor<4xf32>
              %4 = tile.dot %qi, %kj transpose : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x4xf32>
              %5 = tile.broadcast %scale : f32 -> tensor<4x4xf32>
              %6 = arith.mulf %4, %5 : tensor<4x4xf32>
              %visible = tile.mask %i_1, %j {
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
              %tile_top = tile.replace %m_tile, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
              %14 = tile.broadcast %tile_top : tensor<4xf32> -> tensor<4x4xf32>
              %15 = arith.subf %s, %14 : tensor<4x4xf32>
              %p = math.exp %15 : tensor<4x4xf32>
              %l_tile = tile.row_sum %p : tensor<4x4xf32> -> tensor<4xf32>
              %m_new = arith.maximumf %m_i, %m_tile : tensor<4xf32>
              %top = tile.replace %m_new, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
              %16 = arith.subf %m_i, %top : tensor<4xf32>
              %alpha = math.exp %16 : tensor<4xf32>
              %17 = arith.subf %m_tile, %top : tensor<4xf32>
              %beta = math.exp %17 : tensor<4xf32>
              %l_kept = arith.mulf %l_i, %alpha : tensor<4xf32>
              %18 = arith.mulf %beta, %l_tile : tensor<4xf32>
              %l_new = arith.addf %l_kept, %18 : tensor<4xf32>
              %pv = tile.dot %p, %vj where %visible : tensor<4x4xi1> : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>
              %19 = tile.broadcast %l_kept : tensor<4xf32> -> tensor<4x8xf32>
              %20 = arith.mulf %19, %acc_i : tensor<4x8xf32>
              %21 = tile.broadcast %beta : tensor<4xf32> -> tensor<4x8xf32>
              %22 = arith.mulf %21, %pv : tensor<4x8xf32>
              %total = arith.addf %20, %22 : tensor<4x8xf32>
              %divisor = tile.replace %l_new, 0.000000e+00 : f32, 1.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
              %23 = tile.broadcast %divisor : tensor<4xf32> -> tensor<4x8xf32>
              %acc_new = arith.divf %total, %23 : tensor<4x8xf32>
              tile.store %acc_new, %acc[%i_1, %c0] : tensor<4x8xf32>, memref<?x8xf32>
              tile.store %l_new, %l[%i_1] : tensor<4xf32>, memref<?xf32>
              tile.store %m_new, %m[%i_1] : tensor<4xf32>, memref<?xf32>
            }
          }
          scf.for %i_2 = %c0 to %Nq step %br {
            %o_i = tile.load %acc[%i_2, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
            tile.store %o_i, %o[%b, %h, %i_2, %c0] : tensor<4x8xf32>, memref<?x?x?x8xf32, strided<[?, ?, ?, ?]>>
            %m_i_1 = tile.load %m[%i_2] : memref<?xf32> -> tensor<4xf32>
            %l_i_1 = tile.load %l[%i_2] : memref<?xf32> -> tensor<4xf32>
            %24 = tile.replace %m_i_1, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>
            %25 = math.log %l_i_1 : tensor<4xf32>
            %lse_i = arith.addf %24, %25 : tensor<4xf32>
            tile.store %lse_i, %lse[%b, %h, %i_2] : tensor<4xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>
          }
        }
      }
    }
    func.return
  }
}
