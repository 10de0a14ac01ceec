//go:build !race

package memstore

// raceEnabled is true under the race detector, which does not see mapped memory.
const raceEnabled = false
