// RUN: flashgen emit -d 8 --br 4 --bc 6 --panel 16 --layout packed-paged --fetch-ahead --print-ir-after fetch-ahead | filecheck %s
// Of sequences of different lengths the arrays of the next one are fetched, which are used for nothing else.

// CHECK:      ^bb0(%b: index, %g: index):
// CHECK:        %b_next = arith.minsi
// CHECK:        %q_b_next = tile.sequence %q, %cu_seqlens_q[%b_next]
// CHECK:        %k_b_next = tile.pages %k, %block_table, %seqlens_k[%b_next]
// CHECK:        tile.fetch %k_b_next[%c0, %g_next, %i, %c0] of tensor<4x8xf32>
// CHECK-NEXT:   tile.fetch %q_b_next[%c0, %h_next, %i, %c0] of tensor<4x8xf32>
// CHECK:        tile.fetch %v_b_next[%c0, %g_next, %i, %c0] of tensor<4x8xf32>
// CHECK-NEXT:   tile.fetch %o_b[%c0, %h, %i, %c0] of tensor<4x8xf32>
