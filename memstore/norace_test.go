//go:build !race

package memstore_test

// What takes 20 times as long with the race detector is done less often with it.
const (
	flood = 10 // times as many keys as there is room for
	kills = 60 // of processes
)
