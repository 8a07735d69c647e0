// RUN: not flashgen opt %s -p fold-scale 2>&1 | filecheck %s
// The left side is made anew for each product: multiplying it saves nothing.

func.func @f(%p: tensor<4x6xf32>, %v: tensor<6x8xf32>, %scale: f32) {
  %e = math.exp2 %p : tensor<4x6xf32>
  %x = tile.dot %e, %v : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %wide = tile.broadcast %scale : f32 -> tensor<4x8xf32>
  %y = arith.mulf %x, %wide : tensor<4x8xf32>
  func.return
}

// CHECK: error: fold-scale: tile.dot: its left operand is not loaded, so the factor would be applied again and again
