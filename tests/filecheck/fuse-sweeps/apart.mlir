// RUN: flashgen opt %s -p "fuse-sweeps{apart=true}" | filecheck %s
// Each reduction reads a tile that others have written.

func.func @f(%s: tensor<4x6xf32>, %b: tensor<4xf32>, %v: tensor<6x8xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {
  %wide = tile.broadcast %b : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp2 %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  %y = tile.dot %p, %v : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  func.return %l, %y : tensor<4xf32>, tensor<4x8xf32>
}

// CHECK:       %wide = tile.broadcast
// CHECK-NEXT:  %d = arith.subf %s, %wide
// CHECK-NEXT:  %p = math.exp2 %d
// CHECK-NEXT:  %l = tile.sweep %p reduce "add"
