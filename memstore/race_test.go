//go:build race

package memstore_test

// flood is how many times as many keys arrive as there is room for. It is smaller with the race
// detector.
const flood = 2
