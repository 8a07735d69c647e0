// RUN: flashgen emit -d 8 --br 4 --bc 4 --order kv-outer --rescale-threshold 0.5 --print-ir-after rescale-threshold | filecheck %s
// FlashAttention-1's form: the state is in memory, and read behind the loops by loads.

// CHECK:      scf.for %j
// CHECK:        %highest = arith.maximumf %m_i, %m_tile : tensor<4xf32>
// CHECK-NEXT:   %m_new = tile.hold %m_i, %highest, 5.000000e-01 : f32
// CHECK-NEXT:   %top = tile.replace %m_new
// CHECK:        tile.store %m_new, %m[%i_1]
