// RUN: flashgen emit -d 8 --br 4 --bc 4 --panel 16 --order kv-outer --no-hoist-packs --print-ir-after parallel-loops | not flashgen opt - -p fetch-ahead 2>&1 | filecheck %s
// A step that packs its own tiles finds them in the caches where the tile of queries before has been.

// CHECK: error: fetch-ahead: tile.pack: packs what is not loaded, or stands beside the products
