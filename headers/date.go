package headers

import (
	"sync/atomic"
	"time"
)

// The three formats of an HTTP date (RFC 9110, section 5.6.7). Only the first is written.
const (
	imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850     = "Monday, 02-Jan-06 15:04:05 GMT"
	asctime    = "Mon Jan _2 15:04:05 2006"
)

// AppendDate appends an HTTP date. unix is in seconds, and is clamped to the years 1970 to 9999.
func AppendDate(dst []byte, unix int64) []byte {
	const last = 253402300799 // 9999-12-31T23:59:59Z
	return time.Unix(min(max(unix, 0), last), 0).UTC().AppendFormat(dst, imfFixdate)
}

// ParseDate reads an HTTP date in any of its three formats. The day of the week must be that of the
// date, and the date must not be before 1970. A two-digit year from 69 to 99 is in the last
// century.
func ParseDate(s string) (unix int64, ok bool) {
	for _, layout := range [...]string{imfFixdate, rfc850, asctime} {
		t, err := time.Parse(layout, s)
		// time.Parse accepts any letter case, fractions and a wrong weekday.
		if err == nil && t.Unix() >= 0 && t.Format(layout) == s {
			return t.Unix(), true
		}
	}
	return 0, false
}

// A DateCache formats the Date of each second once. The zero value is ready for use. A DateCache is
// safe for concurrent use.
type DateCache struct {
	last atomic.Pointer[datedSecond]
}

type datedSecond struct {
	unix int64
	text string
}

// At returns the HTTP date of unix. It allocates only if unix differs from that of the last call.
func (c *DateCache) At(unix int64) string {
	if d := c.last.Load(); d != nil && d.unix == unix {
		return d.text
	}
	d := &datedSecond{unix: unix, text: string(AppendDate(nil, unix))}
	c.last.Store(d)
	return d.text
}
