// RUN: flashgen opt %s -p fuse-loops | filecheck %s
// What the second loop reads, the same iteration of the first has written; what is pure moves in front.

func.func @f(%a: memref<?xf32>, %o: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %one = arith.constant 1.0 : f32
  scf.for %i = %c0 to %n step %c4 {
    %x = tile.broadcast %one : f32 -> tensor<4xf32>
    tile.store %x, %a[%i] : tensor<4xf32>, memref<?xf32>
  }
  %two = arith.addf %one, %one : f32
  scf.for %i2 = %c0 to %n step %c4 {
    %ahead = arith.addi %i2, %c4 : index
    %y = tile.load %a[%i2] : memref<?xf32> -> tensor<4xf32>
    %z = tile.broadcast %two : f32 -> tensor<4xf32>
    %s = arith.addf %y, %z : tensor<4xf32>
    tile.store %s, %o[%i2] : tensor<4xf32>, memref<?xf32>
  }
  func.return
}

// CHECK:       %two = arith.addf %one, %one
// CHECK-NEXT:  scf.for %i = %c0 to %n step %c4 {
// CHECK-NEXT:    %x = tile.broadcast %one
// CHECK-NEXT:    tile.store %x, %a[%i]
// CHECK-NEXT:    %ahead = arith.addi %i, %c4
// CHECK-NEXT:    %y = tile.load %a[%i]
// CHECK:         tile.store %s, %o[%i]
// CHECK-NEXT:  } {made_by = "fuse-loops"}
// CHECK-NOT:   scf.for
