package accesslog

import (
	"bytes"
	"math"
	"time"
)

// A clock parses timestamps. It caches the last minute, because consecutive lines mostly share it
// and a date is expensive to compute. It is not safe for concurrent use.
type clock struct {
	minute [17]byte // as written in the log
	zone   [6]byte
	size   int   // bytes of zone, plus 1 in the ISO format; 0 before the first timestamp
	base   int64 // Unix seconds of the minute
}

const (
	firstYear = 1970
	lastYear  = 2261 // the last whole year in Unix nanoseconds
)

// common parses 10/Oct/2000:13:55:36 -0700. All digits are required.
func (c *clock) common(b []byte) (ns int64, ok bool) {
	if len(b) != 26 || b[17] != ':' || b[20] != ' ' {
		return 0, false
	}
	second, ok := twoDigits(b[18:], 60) // 60 is a leap second: the next one
	if !ok {
		return 0, false
	}
	if c.size == 5 && string(b[:17]) == string(c.minute[:]) && string(b[21:]) == string(c.zone[:5]) {
		return (c.base + int64(second)) * 1e9, true
	}
	if b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' {
		return 0, false
	}
	month := bytes.Index([]byte("JanFebMarAprMayJunJulAugSepOctNovDec"), b[3:6])
	if month < 0 || month%3 != 0 {
		return 0, false
	}
	day, ok1 := twoDigits(b, 31)
	year, ok2 := fourDigits(b[7:])
	hour, ok3 := twoDigits(b[12:], 23)
	minute, ok4 := twoDigits(b[15:], 59)
	offset, ok5 := zoneOffset(b[21:])
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return 0, false
	}
	base, ok := unixMinute(year, month/3+1, day, hour, minute)
	if !ok {
		return 0, false
	}
	c.base, c.size = base-offset, 5
	copy(c.minute[:], b)
	copy(c.zone[:], b[21:])
	return (c.base + int64(second)) * 1e9, true
}

// iso parses 2000-10-10T13:55:36.123-07:00 in the forms of RFC 3339 and ISO 8601: a space may
// replace the T, a comma the point, and the zone may lack its colon. It also parses 2000/10/10
// 13:55:36. A time without a zone is UTC.
func (c *clock) iso(b []byte) (ns int64, ok bool) {
	if len(b) < 19 || b[16] != ':' {
		return 0, false
	}
	second, ok := twoDigits(b[17:], 60)
	if !ok {
		return 0, false
	}
	zone := b[19:]
	nanos := int64(0)
	if len(zone) > 0 && (zone[0] == '.' || zone[0] == ',') {
		n := 1
		for n < len(zone) && isDigit(zone[n]) {
			n++
		}
		if n == 1 {
			return 0, false
		}
		nanos, zone = fraction(zone[1:n]), zone[n:]
	}
	if c.size != len(zone)+1 || len(zone) > len(c.zone) || string(b[:16]) != string(c.minute[:16]) ||
		c.minute[16] != 0 || string(zone) != string(c.zone[:len(zone)]) {
		if !c.isoMinute(b[:16], zone) {
			return 0, false
		}
	}
	return (c.base+int64(second))*1e9 + nanos, true
}

func (c *clock) isoMinute(b, zone []byte) bool {
	if !(b[4] == '-' && b[7] == '-') && !(b[4] == '/' && b[7] == '/') || b[10] != 'T' && b[10] != ' ' || b[13] != ':' {
		return false
	}
	year, ok1 := fourDigits(b)
	month, ok2 := twoDigits(b[5:], 12)
	day, ok3 := twoDigits(b[8:], 31)
	hour, ok4 := twoDigits(b[11:], 23)
	minute, ok5 := twoDigits(b[14:], 59)
	offset, ok6 := zoneOffset(zone)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 {
		return false
	}
	base, ok := unixMinute(year, month, day, hour, minute)
	if !ok {
		return false
	}
	c.base, c.size = base-offset, len(zone)+1
	copy(c.minute[:], b)
	c.minute[16] = 0 // the common format never has 0 here
	copy(c.zone[:], zone)
	return true
}

// epoch parses the time since 1970 with or without a fraction, in seconds, milliseconds,
// microseconds or nanoseconds, depending on the number of digits.
func (c *clock) epoch(b []byte) (ns int64, ok bool) {
	n := 0
	for n < len(b) && isDigit(b[n]) {
		n++
	}
	unit := int64(1)
	switch {
	case n == 0 || n > 19:
		return 0, false
	case n <= 11:
		unit = 1e9
	case n <= 14:
		unit = 1e6
	case n <= 17:
		unit = 1e3
	}
	return decimal(b, unit)
}

// any parses a timestamp in any of these formats.
func (c *clock) any(b []byte) (ns int64, ok bool) {
	if len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' {
		b = b[1 : len(b)-1]
	}
	switch {
	case len(b) > 4 && (b[4] == '-' || b[4] == '/'):
		return c.iso(b)
	case len(b) > 2 && b[2] == '/':
		return c.common(b)
	}
	return c.epoch(b)
}

// decimal parses digits with or without a fraction, in units of unit nanoseconds, and truncates to
// nanoseconds.
func decimal(b []byte, unit int64) (ns int64, ok bool) {
	n, whole := 0, int64(0)
	for ; n < len(b) && isDigit(b[n]); n++ {
		if whole > math.MaxInt64/10-1 {
			return 0, false
		}
		whole = whole*10 + int64(b[n]-'0')
	}
	if n == 0 || whole > math.MaxInt64/unit-1 {
		return 0, false
	}
	ns = whole * unit
	if n == len(b) {
		return ns, true
	}
	if b[n] != '.' || n+1 == len(b) {
		return 0, false
	}
	for _, d := range b[n+1:] {
		if !isDigit(d) {
			return 0, false
		}
	}
	return ns + fraction(b[n+1:])/(1e9/unit), true
}

// fraction parses the digits after a point, in billionths.
func fraction(b []byte) (billionths int64) {
	unit := int64(1e8)
	for i := 0; i < len(b) && i < 9; i++ {
		billionths += int64(b[i]-'0') * unit
		unit /= 10
	}
	return billionths
}

func unixMinute(year, month, day, hour, minute int) (seconds int64, ok bool) {
	if year < firstYear || year > lastYear || month < 1 || day < 1 {
		return 0, false
	}
	t := time.Date(year, time.Month(month), day, hour, minute, 0, 0, time.UTC)
	// rejects the 31st of February, which time.Date turns into a day of March
	return t.Unix(), t.Day() == day
}

// zoneOffset parses Z, -0700, -07:00 or nothing, and returns seconds east of UTC.
func zoneOffset(b []byte) (seconds int64, ok bool) {
	if len(b) == 0 || len(b) == 1 && b[0] == 'Z' {
		return 0, true
	}
	if len(b) == 6 && b[3] == ':' {
		b = []byte{b[0], b[1], b[2], b[4], b[5]}
	}
	if len(b) != 5 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	hours, ok1 := twoDigits(b[1:], 23)
	minutes, ok2 := twoDigits(b[3:], 59)
	seconds = int64(hours*3600 + minutes*60)
	if b[0] == '-' {
		seconds = -seconds
	}
	return seconds, ok1 && ok2
}

func isDigit(c byte) bool { return c-'0' <= 9 }

func twoDigits(b []byte, max int) (n int, ok bool) {
	if len(b) < 2 || !isDigit(b[0]) || !isDigit(b[1]) {
		return 0, false
	}
	n = int(b[0]-'0')*10 + int(b[1]-'0')
	return n, n <= max
}

func fourDigits(b []byte) (n int, ok bool) {
	century, ok1 := twoDigits(b, 99)
	year, ok2 := twoDigits(b[2:], 99)
	return century*100 + year, ok1 && ok2
}
