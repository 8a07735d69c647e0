// RUN: flashgen emit --br 4 --bc 4 -d 8 --panel 0 --print-ir-after fuse-sweeps -o %t
// RUN: not flashgen opt %t -p group-rows 2>&1 | filecheck %s
// Spans say of each row what it sees; the query that it stands for would have to change in them too.

// CHECK: error: group-rows: tile.row_span: uses the number of a query otherwise than as a row
