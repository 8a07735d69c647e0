// RUN: not flashgen opt %s -p mask-to-spans 2>&1 | filecheck %s
// Scores that are stored: what is -inf there must not become unspecified.

func.func @f(%x: tensor<4x6xf32>, %i: index, %j: index, %Nk: index, %o: memref<?x6xf32>) {
  %c0 = arith.constant 0 : index
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %vis = tile.mask %i, %j {
  ^bb0(%row: index, %col: index):
    %a = arith.cmpi slt, %col, %Nk : index
    tile.yield %a : i1
  } : tensor<4x6xi1>
  %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  tile.store %s, %o[%i, %c0] : tensor<4x6xf32>, memref<?x6xf32>
  func.return
}

// CHECK: error: mask-to-spans: tile.store: reads masked scores otherwise than for a maximum or a difference from one
