// RUN: flashgen opt %s -p hoist-packs | filecheck %s
// The tiles of K and V are the same for all r and i: they are packed in front of both loops, whole rows beyond
// the last as zeros.

func.func @f(%q: memref<?x?x8xf32>, %k: memref<?x8xf32>, %v: memref<?x8xf32>, %o: memref<?x?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %R = memref.dim %q, %c0 : memref<?x?x8xf32>
  %Nq = memref.dim %q, %c1 : memref<?x?x8xf32>
  %Nk = memref.dim %k, %c0 : memref<?x8xf32>
  scf.for %r = %c0 to %R step %c1 {
    scf.for %i = %c0 to %Nq step %c4 {
      scf.for %j = %c0 to %Nk step %c4 {
        %kj = tile.load %k[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
        %kp = tile.pack %kj transpose : tensor<4x8xf32> -> tensor<1x8x4xf32>
        %vj = tile.load %v[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
        %vp = tile.pack %vj : tensor<4x8xf32> -> tensor<2x4x4xf32>
        %qi = tile.load %q[%r, %i, %c0] : memref<?x?x8xf32> -> tensor<4x8xf32>
        %s = tile.dot %qi, %kp : tensor<4x8xf32>, tensor<1x8x4xf32> -> tensor<4x4xf32>
        %y = tile.dot %s, %vp : tensor<4x4xf32>, tensor<2x4x4xf32> -> tensor<4x8xf32>
        tile.store %y, %o[%r, %i, %c0] : tensor<4x8xf32>, memref<?x?x8xf32>
      }
    }
  }
  func.return
}

// CHECK:       %tiles = arith.ceildivsi %Nk, %c4
// CHECK-NEXT:  %k_panels = memref.alloc(%tiles) {{.*}} : memref<?x1x8x4xf32>
// CHECK-NEXT:  %v_panels = memref.alloc(%tiles) {{.*}} : memref<?x2x4x4xf32>
// CHECK-NEXT:  scf.for %t = %c0 to %tiles step %c1 {
// CHECK-NEXT:    %j = arith.muli %t, %c4
// CHECK-NEXT:    %kj = tile.load %k[%j, %c0]
// CHECK-NEXT:    %kp = tile.pack %kj transpose
// CHECK-NEXT:    tile.store %kp, %k_panels[%t, %c0, %c0, %c0]
// CHECK-NEXT:    %vj = tile.load %v[%j, %c0]
// CHECK-NEXT:    %vp = tile.pack %vj
// CHECK-NEXT:    tile.store %vp, %v_panels[%t, %c0, %c0, %c0]
// CHECK-NEXT:  }
// CHECK-NEXT:  scf.for %r =
// CHECK-NEXT:    scf.for %i =
// CHECK-NEXT:      scf.for %j_1 =
// CHECK-NEXT:        %t_1 = arith.floordivsi %j_1, %c4
// CHECK-NEXT:        %kp_1 = tile.load %k_panels[%t_1, %c0, %c0, %c0] in_bounds
// CHECK-NEXT:        %vp_1 = tile.load %v_panels[%t_1, %c0, %c0, %c0] in_bounds
// CHECK-NEXT:        %qi = tile.load
