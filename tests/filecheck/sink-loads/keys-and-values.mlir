// RUN: flashgen opt %s -p sink-loads | filecheck %s
// Loads, and what is computed beside them, move into the one inner loop.

func.func @f(%k: memref<?x8xf32>, %a: memref<?x8xf32>, %n: index, %step: index) {
  %c0 = arith.constant 0 : index
  scf.for %j = %c0 to %n step %step {
    %next = arith.addi %j, %step : index
    %kj = tile.load %k[%next, %c0] : memref<?x8xf32> -> tensor<4x8xf32>
    scf.for %i = %c0 to %n step %step {
      tile.store %kj, %a[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>
    }
  }
  func.return
}

// CHECK:       scf.for %j
// CHECK-NEXT:    scf.for %i
// CHECK-NEXT:      %next = arith.addi %j, %step
// CHECK-NEXT:      %kj = tile.load %k[%next, %c0] {made_by = "sink-loads"}
// CHECK-NEXT:      tile.store %kj, %a[%i, %c0]
// CHECK-NEXT:    }
// CHECK-NEXT:  }
