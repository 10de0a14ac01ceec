//go:build !race

package memstore

// raceEnabled says that the race detector watches, which does not see mapped memory.
const raceEnabled = false
