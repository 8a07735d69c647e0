// RUN: not flashgen opt %s -p accumulate 2>&1 | filecheck %s
// The product is read twice: it has to stand alone.

func.func @f(%x: tensor<4x4xf32>) {
  %d = tile.dot %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
  %y = arith.addf %x, %d : tensor<4x4xf32>
  %z = arith.subf %y, %d : tensor<4x4xf32>
  func.return
}

// CHECK: error: accumulate: builtin.module: no tile is scaled by rows, and no product is added to one
