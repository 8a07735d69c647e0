// RUN: not flashgen opt %s -p fuse-sweeps 2>&1 | filecheck %s
// A product reads the weights before their sum is asked for.

func.func @f(%x: tensor<4x6xf32>, %v: tensor<6x8xf32>) {
  %p = math.exp2 %x : tensor<4x6xf32>
  %y = tile.dot %p, %v : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  func.return
}

// CHECK: error: fuse-sweeps: tile.dot: reads an element above the reduction that it would come from
