//go:build !race

package gateway

import "testing"

// A gigabyte takes a minute with the race detector, which sees nothing here that it does not see in
// TestTheCostIsFoundBehindALongBody.
func TestTheCostIsFoundBehindAGigabyte(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a gigabyte passes")
	}
	findsCost(t, 1<<10, `","usage":{"total_tokens":7}}`, 7)
}
