"""The tile IR: stock func, arith, math, scf and memref on xDSL, and the small dialect `tile`."""
