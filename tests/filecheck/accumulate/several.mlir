// RUN: flashgen opt %s -p accumulate | filecheck %s
// A sum of two products: the second starts from the first, and a third from both.

func.func @f(%p: tensor<4x4xf32>, %o: memref<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %a = tile.dot %p, %p : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %b = tile.dot %p, %p transpose : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %ab = arith.addf %a, %b : tensor<4x4xf32>
  %c = tile.dot %p, %p : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %abc = arith.addf %c, %ab : tensor<4x4xf32>
  tile.store %abc, %o[%c0, %c0] : tensor<4x4xf32>, memref<?x4xf32>
  func.return
}

// CHECK:       %a = tile.dot %p, %p :
// CHECK-NEXT:  %ab = tile.dot %p, %p transpose acc %a
// CHECK-NEXT:  %abc = tile.dot %p, %p acc %ab
// CHECK-NEXT:  tile.store %abc
