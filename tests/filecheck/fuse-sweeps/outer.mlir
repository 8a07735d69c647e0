// RUN: flashgen opt %s -p fuse-sweeps | filecheck %s
// What is made above the loop stays there: the sweep reads it.

func.func @f(%x: tensor<4x6xf32>, %n: index, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %p = math.exp2 %x : tensor<4x6xf32>
  scf.for %j = %c0 to %n step %c1 {
    %d = arith.addf %p, %x : tensor<4x6xf32>
    %l = tile.row_sum %d : tensor<4x6xf32> -> tensor<4xf32>
    tile.store %l, %out[%j] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK:       %p = math.exp2 %x : tensor<4x6xf32>
// CHECK-NEXT:  scf.for %j
// CHECK-NEXT:    %l = tile.sweep %p, %x reduce "add" {
// CHECK-NEXT:    ^bb0([[P:%.*]]: f32, [[X:%.*]]: f32):
// CHECK-NEXT:      [[D:%.*]] = arith.addf [[P]], [[X]] : f32
// CHECK-NEXT:      tile.yield [[D]] : f32
