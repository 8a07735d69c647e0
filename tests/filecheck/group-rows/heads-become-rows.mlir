// RUN: flashgen opt %s -p group-rows | filecheck %s
// Rows are numbered on through all heads of a group; in a mask the query is the row modulo Nq.

func.func @f(%q: memref<?x?x?x4xf32> {tile.extents = ["B", "Hq", "Nq", "D"]},
             %k: memref<?x?x?x4xf32> {tile.extents = ["B", "Hkv", "Nk", "D"]},
             %o: memref<?x?x?x6xf32> {tile.extents = ["B", "Hq", "Nq", "Nk"]}, %offset: index, %hidden: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %Hq = memref.dim %q, %c1 : memref<?x?x?x4xf32>
  %Hkv = memref.dim %k, %c1 : memref<?x?x?x4xf32>
  %Nq = memref.dim %q, %c2 : memref<?x?x?x4xf32>
  %group = arith.floordivsi %Hq, %Hkv : index
  scf.for %g = %c0 to %Hkv step %c1 {
    %first = arith.muli %g, %group : index
    scf.for %r = %c0 to %group step %c1 {
      %h = arith.addi %first, %r : index
      %a = memref.alloc(%Nq) : memref<?xf32>
      %kj = tile.load %k[%c0, %g, %c0, %c0] : memref<?x?x?x4xf32> -> tensor<6x4xf32>
      scf.for %i = %c0 to %Nq step %c3 {
        %qi = tile.load %q[%c0, %h, %i, %c0] : memref<?x?x?x4xf32> -> tensor<3x4xf32>
        %x = tile.dot %qi, %kj transpose : tensor<3x4xf32>, tensor<6x4xf32> -> tensor<3x6xf32>
        %m = tile.row_max %x : tensor<3x6xf32> -> tensor<3xf32>
        tile.store %m, %a[%i] : tensor<3xf32>, memref<?xf32>
        %seen = tile.mask %i, %c0 {
        ^bb0(%row: index, %col: index):
          %1 = arith.cmpi slt, %row, %Nq : index
          %2 = arith.addi %row, %offset : index
          %3 = arith.cmpi sle, %col, %2 : index
          %4 = arith.andi %1, %3 : i1
          tile.yield %4 : i1
        } : tensor<3x6xi1>
        %none = tile.broadcast %hidden : f32 -> tensor<3x6xf32>
        %s = tile.select %seen, %x, %none : tensor<3x6xi1>, tensor<3x6xf32>, tensor<3x6xf32> -> tensor<3x6xf32>
        tile.store %s, %o[%c0, %h, %i, %c0] : tensor<3x6xf32>, memref<?x?x?x6xf32>
      }
    }
  }
  func.return
}

// CHECK:       %rows = arith.muli %group, %Nq
// CHECK-NEXT:  %q_rows = tile.group_rows %q[%Hkv, %rows]
// CHECK-NEXT:  %o_rows = tile.group_rows %o[%Hkv, %rows]
// CHECK-NEXT:  scf.for %g = %c0 to %Hkv step %c1 {
// CHECK-NEXT:    %a = memref.alloc(%rows)
// CHECK-NEXT:    %kj = tile.load %k[%c0, %g, %c0, %c0]
// CHECK-NEXT:    scf.for %i = %c0 to %rows step %c3 {
// CHECK-NEXT:      %qi = tile.load %q_rows[%c0, %g, %i, %c0]
// CHECK:           tile.store %m, %a[%i]
// CHECK-NEXT:      %seen = tile.mask %i, %c0 {
// CHECK-NEXT:      ^bb0(%row: index, %col: index):
// CHECK-NEXT:        %query = arith.remsi %row, %Nq
// CHECK-NEXT:        %{{.*}} = arith.cmpi slt, %row, %rows
// CHECK-NEXT:        %{{.*}} = arith.addi %query, %offset
// CHECK:           tile.store %s, %o_rows[%c0, %g, %i, %c0]
// CHECK-NEXT:    }
// CHECK-NEXT:  }
// CHECK-NEXT:  func.return
