// RUN: not flashgen opt %s -p group-rows 2>&1 | filecheck %s
// A loop whose position is no part of a head's number.

func.func @f(%o: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %g = %c0 to %n step %c1 {
    scf.for %r = %c0 to %n step %c1 {
      %x = tile.load %o[%g, %r] : memref<?x?xf32> -> tensor<1xf32>
      tile.store %x, %o[%g, %r] : tensor<1xf32>, memref<?x?xf32>
    }
  }
  func.return
}

// CHECK: error: group-rows: builtin.module: no loops over the heads of a group; one is wanted
