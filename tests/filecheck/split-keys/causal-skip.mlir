// RUN: flashgen emit -d 8 --br 4 --bc 4 --causal --panel 0 --group-rows --split-keys 8 --print-ir-after causal-skip | filecheck %s
// Each part has the bounds of all keys, cut to its own.

// CHECK:       scf.for %part = %c0 to %parts
// CHECK:         %part_from = arith.muli %part
// CHECK:         %part_to = arith.minsi
// CHECK:           [[N:%[0-9]+]] = arith.floordivsi %Nk, %bc
// CHECK:           %whole_to = arith.maxsi %part_from
// CHECK-NEXT:      %seen_to = arith.minsi %part_to
// CHECK-NEXT:      scf.for %j = %part_from to %whole_to
// CHECK:           scf.for %j_1 = %whole_to to %seen_to
