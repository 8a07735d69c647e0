// RUN: flashgen opt %s -p accumulate | filecheck %s
// FlashAttention-1's form scales the product too, so the product starts from nothing.

func.func @f(%x: tensor<4x8xf32>, %kept: tensor<4xf32>, %beta: tensor<4xf32>, %p: tensor<4x6xf32>, %v: tensor<6x8xf32>, %o: memref<?x8xf32>) {
  %c0 = arith.constant 0 : index
  %d = tile.dot %p, %v : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %wide_kept = tile.broadcast %kept : tensor<4xf32> -> tensor<4x8xf32>
  %old = arith.mulf %x, %wide_kept : tensor<4x8xf32>
  %wide_beta = tile.broadcast %beta : tensor<4xf32> -> tensor<4x8xf32>
  %seen = arith.mulf %wide_beta, %d : tensor<4x8xf32>
  %new = arith.addf %old, %seen : tensor<4x8xf32>
  tile.store %new, %o[%c0, %c0] : tensor<4x8xf32>, memref<?x8xf32>
  func.return
}

// CHECK:       %d = tile.dot %p, %v :
// CHECK-NEXT:  %old = tile.scale_rows %x, %kept
// CHECK-NEXT:  %seen = tile.scale_rows %d, %beta
// CHECK-NEXT:  %new = arith.addf %old, %seen
