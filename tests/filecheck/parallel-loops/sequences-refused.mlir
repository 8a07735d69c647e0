// RUN: not flashgen opt %s -p parallel-loops 2>&1 | filecheck %s
// All iterations write the same sequence: only one whose number is the loop's own belongs to an iteration alone.

func.func @f(%o: memref<?x?xf32>, %starts: memref<?xi32>, %n: index, %s: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %b = %c0 to %n step %c1 {
    %o_b = tile.sequence %o, %starts[%c0] : memref<?x?xf32>, memref<?xi32> -> memref<1x?x?xf32>
    %x = tile.broadcast %s : f32 -> tensor<4xf32>
    tile.store %x, %o_b[%c0, %c0, %c0] : tensor<4xf32>, memref<1x?x?xf32>
  }
  func.return
}

// CHECK: error: parallel-loops: scf.for: %o_b carries a dependence from one iteration to another
