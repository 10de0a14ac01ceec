package config

import (
	"strings"
	"time"
)

// A Unit is the length of a limit's windows. Its numbers are those of
// envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit.
type Unit uint8

const (
	Unknown Unit = 0
	Second  Unit = 1
	Minute  Unit = 2
	Hour    Unit = 3
	Day     Unit = 4
	Month   Unit = 5 // 30 days
	Year    Unit = 6 // 365 days: longer than a window can be
	Week    Unit = 7
)

// Units are the units that a window can have, the shortest first.
var Units = [...]Unit{Second, Minute, Hour, Day, Week, Month}

var units = [...]struct {
	name string
	per  time.Duration
}{
	Unknown: {"unknown", 0},
	Second:  {"second", time.Second},
	Minute:  {"minute", time.Minute},
	Hour:    {"hour", time.Hour},
	Day:     {"day", 24 * time.Hour},
	Month:   {"month", 30 * 24 * time.Hour},
	Year:    {"year", 365 * 24 * time.Hour},
	Week:    {"week", 7 * 24 * time.Hour},
}

// String returns the unit as a file spells it.
func (u Unit) String() string {
	if int(u) < len(units) {
		return units[u].name
	}
	return units[Unknown].name
}

// Per returns the length of a window of the unit; 0 for Unknown.
func (u Unit) Per() time.Duration {
	if int(u) < len(units) {
		return units[u].per
	}
	return 0
}

// CanCount reports whether a window can have the unit: it is known, and at most a month.
func (u Unit) CanCount() bool { return u != Unknown && u != Year && int(u) < len(units) }

// unitNamed returns the unit with a name, in any case of letters, or Unknown.
func unitNamed(name string) Unit {
	for u := range units {
		if strings.EqualFold(name, units[u].name) {
			return Unit(u)
		}
	}
	return Unknown
}
