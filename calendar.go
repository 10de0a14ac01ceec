package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Calendar is spans that begin at the start of a local day. The zero value is none.
type Calendar struct {
	Unit CalendarUnit
	// Zone is the name of a time zone in the IANA database, such as Europe/Berlin. If empty, it is
	// UTC.
	Zone string
	// Day is the day of the month on which a month begins, 1 to 31: the last day of a month that
	// has fewer. For a week it is 1 (Monday) to 7. 0 means 1, and is required for a day.
	Day int
}

// A CalendarUnit is the length of a calendar's spans.
type CalendarUnit uint8

const (
	// CalendarDay is from the first instant of a local day to that of the next.
	CalendarDay CalendarUnit = iota + 1
	// CalendarWeek is seven local days.
	CalendarWeek
	// CalendarMonth is a local month.
	CalendarMonth
)

// dayChange is by how much a change of a zone's clock can lengthen a span: a zone can move to the
// other side of the date line.
const dayChange = 24 * time.Hour

var calendarUnits = []struct {
	unit    CalendarUnit
	name    string
	length  time.Duration // of the longest span, unless a clock is set back in it
	lastDay int           // the highest Day; 0: it has none
}{
	{CalendarDay, "day", 24 * time.Hour, 0},
	{CalendarWeek, "week", 7 * 24 * time.Hour, 7},
	{CalendarMonth, "month", 31 * 24 * time.Hour, 31},
}

// String returns the unit as a policy spells it: "day", "week" or "month".
func (u CalendarUnit) String() string {
	if u >= CalendarDay && u <= CalendarMonth {
		return calendarUnits[u-1].name
	}
	return fmt.Sprintf("CalendarUnit(%d)", uint8(u))
}

// length returns the length of the unit's longest span, unless a clock is set back in it.
func (u CalendarUnit) length() time.Duration {
	if u >= CalendarDay && u <= CalendarMonth {
		return calendarUnits[u-1].length
	}
	return 0
}

const (
	calendarWord = "calendar"
	calendarForm = "a calendar window is LIMIT per calendar UNIT [in ZONE] [from day N] by KEY; UNIT is day, week or month"
	utc          = "UTC"
)

// parseCalendar parses what follows "calendar": UNIT [in ZONE] [from day N].
func parseCalendar(words []string) (c Calendar, err error) {
	if len(words) == 0 {
		return Calendar{}, errors.New(calendarForm)
	}
	for _, u := range calendarUnits {
		if words[0] == u.name {
			c.Unit = u.unit
		}
	}
	if c.Unit == 0 {
		return Calendar{}, fmt.Errorf("calendar unit %q is unknown: day, week and month are allowed, and no number before them", words[0])
	}
	words = words[1:]
	if len(words) >= 2 && words[0] == "in" {
		if _, err := loadZone(words[1]); err != nil {
			return Calendar{}, err
		}
		if c.Zone = words[1]; c.Zone == utc {
			c.Zone = ""
		}
		words = words[2:]
	}
	if len(words) == 3 && words[0] == "from" && words[1] == "day" {
		day, err := parseCount(words[2])
		if err != nil || day > int64(calendarUnits[c.Unit-1].lastDay) {
			return Calendar{}, c.dayProblem(words[2])
		}
		if day > 1 {
			c.Day = int(day)
		}
		words = nil
	}
	if len(words) > 0 {
		return Calendar{}, errors.New(calendarForm)
	}
	return c, nil
}

func (c Calendar) dayProblem(day string) error {
	switch c.Unit {
	case CalendarMonth:
		return fmt.Errorf("from day %s: a month begins on day 1 to 31, on its last day if it has fewer", day)
	case CalendarWeek:
		return fmt.Errorf("from day %s: a week begins on day 1 (Monday) to 7 (Sunday)", day)
	}
	return fmt.Errorf("from day %s: only a week and a month begin on a day of their own", day)
}

// String returns the calendar as a policy spells it: "calendar month in Europe/Berlin from day 15".
// It leaves out what is the default, so two calendars with the same spans have the same spelling.
func (c Calendar) String() string {
	if c == (Calendar{}) {
		return ""
	}
	s := calendarWord + " " + c.Unit.String()
	if c.Zone != "" && c.Zone != utc {
		s += " in " + c.Zone
	}
	if c.Day > 1 {
		s += fmt.Sprint(" from day ", c.Day)
	}
	return s
}

// problem returns what is wrong with a calendar, or its zone.
func (c Calendar) problem() (*time.Location, error) {
	if c.Unit < CalendarDay || c.Unit > CalendarMonth {
		return nil, fmt.Errorf("calendar unit %v is unknown: day, week and month are allowed", c.Unit)
	}
	if c.Day < 0 || c.Day > calendarUnits[c.Unit-1].lastDay {
		return nil, c.dayProblem(fmt.Sprint(c.Day))
	}
	if c.Zone == "" {
		return time.UTC, nil
	}
	return loadZone(c.Zone)
}

func (c *checker) checkCalendar(i int, w Window) {
	if _, err := w.Calendar.problem(); err != nil {
		c.add("windows", i, w.String(), "window %q: %v", w, err)
	} else if w.Per != w.Calendar.Unit.length() {
		c.add("windows", i, w.String(), "length %v of %q: Per of a calendar %v is %v", w.Per, w, w.Calendar.Unit, w.Calendar.Unit.length())
	}
}

// zoneAreas are the areas of the IANA database that have cities.
var zoneAreas = []string{"Europe", "America", "Asia", "Africa", "Australia", "Pacific", "Atlantic", "Indian", "Antarctica", "Arctic"}

// maxZone is the max length of a zone's name. The longest of the IANA database has 32 bytes.
const maxZone = 64

// loadZone returns the zone of a name. All names of the IANA database begin with a capital letter:
// what does not is another file of the system's.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("zone Local is another one on each machine: name a zone of the IANA time zone database, such as Europe/Berlin")
	}
	if zone := zoneNamed(name); zone != nil {
		return zone, nil
	}
	hint := ""
	if near := nearZone(name); near != "" {
		hint = fmt.Sprintf("did you mean %s? ", near)
	}
	return nil, fmt.Errorf("zone %q is unknown here: %sa zone is a name of the IANA time zone database, such as Europe/Berlin or America/New_York (letter case matters), or UTC", name, hint)
}

// zoneNamed returns nil for a zone that does not exist.
func zoneNamed(name string) *time.Location {
	if name == "" || len(name) > maxZone || name[0] < 'A' || name[0] > 'Z' || name == "Local" {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return zone
}

// nearZone returns an existing name that differs in letter case, in blanks or by a missing area
// only, or "".
func nearZone(name string) string {
	if len(name) > maxZone {
		return ""
	}
	var title strings.Builder
	begins := true
	for _, c := range []byte(strings.ToLower(name)) {
		if c == ' ' {
			c = '_'
		}
		if begins && 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		begins = c == '/' || c == '_' || c == '-'
		title.WriteByte(c)
	}
	candidates := []string{title.String(), strings.ToUpper(name)}
	for _, area := range zoneAreas {
		candidates = append(candidates, area+"/"+title.String())
	}
	for _, c := range candidates {
		if zoneNamed(c) != nil {
			return c
		}
	}
	return ""
}

// span returns the span that contains now, in Unix seconds.
func (c Calendar) span(now int64, zone *time.Location) (begin, end int64) {
	date := c.beginOf(time.Unix(now, 0).In(zone))
	begin, end = firstOf(date, zone), 0
	for n := 1; ; n++ {
		// Where clocks are set back around midnight, the day that follows may have begun already.
		if end = firstOf(c.later(date, n), zone); end > now {
			return begin, end
		}
		begin = end
	}
}

// beginOf returns the date on which the span of a local date begins.
func (c Calendar) beginOf(local time.Time) civil {
	y, m, d := local.Date()
	switch c.Unit {
	case CalendarWeek:
		since := (int(local.Weekday()) + 6 - (max(c.Day, 1) - 1)) % 7
		return civil{y, m, d - since}
	case CalendarMonth:
		if this := c.inMonth(y, m); d >= this.day {
			return this
		}
		return c.inMonth(y, m-1)
	}
	return civil{y, m, d}
}

// later returns the date on which the nth span after that of begin begins.
func (c Calendar) later(begin civil, n int) civil {
	switch c.Unit {
	case CalendarWeek:
		begin.day += 7 * n
	case CalendarMonth:
		return c.inMonth(begin.year, begin.month+time.Month(n))
	default:
		begin.day += n
	}
	return begin
}

// inMonth returns the date in a month on which a span begins.
func (c Calendar) inMonth(year int, month time.Month) civil {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return civil{year, month, min(max(c.Day, 1), last)}
}

// A civil is a date. Its month and day may be out of range, as in time.Date.
type civil struct {
	year  int
	month time.Month
	day   int
}

// firstOf returns the first instant in zone that is on the date or on a later one, in Unix seconds.
// A date that a zone has skipped begins with the one after it.
func firstOf(date civil, zone *time.Location) int64 {
	// as if the zone were UTC
	midnight := time.Date(date.year, date.month, date.day, 0, 0, 0, 0, time.UTC).Unix()
	// No zone is as far from UTC, so at this time the date has not come.
	at := time.Unix(midnight, 0).Add(-36 * time.Hour).In(zone)
	for {
		_, offset := at.Zone()
		first := max(midnight-int64(offset), at.Unix())
		_, until := at.ZoneBounds()
		if until.IsZero() || first < until.Unix() {
			return first
		}
		at = until
	}
}
