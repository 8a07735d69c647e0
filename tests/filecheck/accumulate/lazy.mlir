// RUN: flashgen opt %s -p accumulate | filecheck %s
// The product starts from the state, which is scaled by rows.

func.func @f(%x: tensor<4x8xf32>, %alpha: tensor<4xf32>, %p: tensor<4x6xf32>, %v: tensor<6x8xf32>, %o: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %d = tile.dot %p, %v : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %wide = tile.broadcast %alpha : tensor<4xf32> -> tensor<4x8xf32>
  %kept = arith.mulf %wide, %x : tensor<4x8xf32>
  %new = arith.addf %kept, %d : tensor<4x8xf32>
  tile.store %new, %o[%c0, %c0] : tensor<4x8xf32>, memref<?x8xf32>
  func.return
}

// CHECK:       %c0 = arith.constant
// CHECK-NEXT:  %kept = tile.scale_rows %x, %alpha
// CHECK-NEXT:  %new = tile.dot %p, %v acc %kept
// CHECK-NEXT:  tile.store %new
