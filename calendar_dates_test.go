//go:build !race

// The race detector would only make the arithmetic slow: nothing else runs meanwhile.

package weir

import (
	"math/rand/v2"
	"testing"
	"time"
)

// naive finds the spans of a calendar by looking at the local date of every minute: a span begins
// in the first minute in which a date is reached on which one begins.
type naive struct {
	c      Calendar
	zone   *time.Location
	latest time.Time // the latest local date so far, as if it were UTC
}

func (n *naive) begins(minute int64) bool {
	y, m, d := time.Unix(minute, 0).In(n.zone).Date()
	date := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	if !date.After(n.latest) {
		return false
	}
	from := n.latest.AddDate(0, 0, 1)
	if n.latest.IsZero() {
		from = date
	}
	n.latest = date
	for ; !from.After(date); from = from.AddDate(0, 0, 1) {
		if n.isFirst(from) {
			return true
		}
	}
	return false
}

// next returns the minute to look at next. Between 5 and 20 o'clock no date begins, in any zone.
func (n *naive) next(minute int64) int64 {
	if time.Unix(minute, 0).In(n.zone).Hour() == 5 {
		return minute + 15*3600
	}
	return minute + 60
}

func (n *naive) isFirst(date time.Time) bool {
	day := max(n.c.Day, 1)
	switch n.c.Unit {
	case CalendarWeek:
		return (int(date.Weekday())+6)%7+1 == day
	case CalendarMonth:
		isLast := date.AddDate(0, 0, 1).Day() == 1
		return date.Day() == day || isLast && date.Day() < day
	}
	return true
}

func TestSpansOfACalendarAgreeWithItsDates(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "Pacific/Apia", "Pacific/Kiritimati", "Africa/Cairo", "Asia/Gaza"}
	random := rand.New(rand.NewPCG(1, 2))
	years := 1
	if !testing.Short() {
		years = 12
	}
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for unit := CalendarDay; unit <= CalendarMonth; unit++ {
			c := Calendar{Unit: unit, Zone: name}
			if unit != CalendarDay {
				c.Day = 1 + random.IntN(calendarUnits[unit-1].lastDay)
			}
			agreesWithDates(t, c, zone, time.Date(2010, 11, 1, 0, 0, 0, 0, time.UTC).Unix(), years)
		}
	}
}

func agreesWithDates(t *testing.T, c Calendar, zone *time.Location, from int64, years int) {
	t.Helper()
	n, e := naive{c: c, zone: zone}, Ends{calendar: c, zone: zone}
	var begin int64
	for minute := from; minute < from+int64(years)*500*86400; minute = n.next(minute) {
		if !n.begins(minute) {
			continue
		}
		if begin != 0 {
			for _, now := range []int64{begin, (begin + minute) / 2, minute - 1} {
				if b, end := e.Span(now); b != begin || end != minute {
					t.Fatalf("%v: at %d the span is %d to %d, want %d to %d", c, now, b, end, begin, minute)
				}
				if length := minute - begin; length > e.Longest() {
					t.Fatalf("%v: a span of %d s is longer than the longest, %d", c, length, e.Longest())
				}
			}
		} else if minute == from {
			continue // the first minute can be anywhere in a span
		}
		begin = minute
	}
}
