// RUN: not flashgen opt %s -p fuse-loops 2>&1 | filecheck %s
// Two loops over different ranges are no neighbours.

func.func @f(%a: memref<?xf32>, %o: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %one = arith.constant 1.0 : f32
  scf.for %i = %c0 to %n step %c4 {
    %x = tile.broadcast %one : f32 -> tensor<4xf32>
    tile.store %x, %a[%i] : tensor<4xf32>, memref<?xf32>
  }
  %two = arith.addf %one, %one : f32
  scf.for %i2 = %c4 to %n step %c4 {
    %ahead = arith.addi %i2, %c4 : index
    %y = tile.load %a[%i2] : memref<?xf32> -> tensor<4xf32>
    %z = tile.broadcast %two : f32 -> tensor<4xf32>
    %s = arith.addf %y, %z : tensor<4xf32>
    tile.store %s, %o[%i2] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK: error: fuse-loops: builtin.module: no two neighbouring loops run over the same range
