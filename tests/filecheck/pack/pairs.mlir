// RUN: flashgen opt %s -p "pack{panel=4}" | filecheck %s
// Of bfloat16 the contraction goes in pairs: 7 columns of K are four of them, and the last half is 0.

func.func @f(%q: tensor<4x7xbf16>, %k: memref<?x7xbf16>) {
  %c0 = arith.constant 0 : index
  %kj = tile.load %k[%c0, %c0] : memref<?x7xbf16> -> tensor<6x7xbf16>
  %s = tile.dot %q, %kj transpose : tensor<4x7xbf16>, tensor<6x7xbf16> -> tensor<4x6xf32>
  func.return
}

// CHECK:       %kj_panels = tile.pack %kj transpose {made_by = "pack"} : tensor<6x7xbf16> -> tensor<2x4x4x2xbf16>
// CHECK-NEXT:  %s = tile.dot %q, %kj_panels {made_by = "pack"} : tensor<4x7xbf16>, tensor<2x4x4x2xbf16> -> tensor<4x6xf32>
