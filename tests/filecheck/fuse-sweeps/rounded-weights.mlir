// RUN: flashgen opt %s -p fuse-sweeps | filecheck %s
// What rounds an element of the row belongs to the sweep, and the sum is that of what is not rounded.

func.func @f(%s: tensor<4x6xf32>, %v: tensor<6x5xbf16>, %o: memref<?x5xf32>, %out: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %p = math.exp2 %s : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  tile.store %l, %out[%c0] : tensor<4xf32>, memref<?xf32>
  %n = arith.truncf %p : tensor<4x6xf32> to tensor<4x6xbf16>
  %y = tile.dot %n, %v : tensor<4x6xbf16>, tensor<6x5xbf16> -> tensor<4x5xf32>
  tile.store %y, %o[%c0, %c0] : tensor<4x5xf32>, memref<?x5xf32>
  func.return
}

// CHECK:       %n, %l = tile.sweep %s reduce "add" {
// CHECK-NEXT:  ^bb0([[S:%.*]]: f32):
// CHECK-NEXT:    [[P:%.*]] = math.exp2 [[S]] : f32
// CHECK-NEXT:    [[N:%.*]] = arith.truncf [[P]] : f32 to bf16
// CHECK-NEXT:    tile.yield [[N]], [[P]] : bf16, f32
// CHECK:       %y = tile.dot %n, %v
