package weir

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func endsOfWindow(t testing.TB, l Limiter, spec string) *Ends {
	t.Helper()
	w, err := ParseWindow(spec)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := NewEnds(&l, &w)
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

func unix(t testing.TB, at string) int64 {
	t.Helper()
	v, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	return v.Unix()
}

// The expected instants are of the IANA database, read by hand.
func TestAWindowOfACalendarEndsWhenALocalDayBegins(t *testing.T) {
	for _, test := range []struct{ spec, now, begin, end string }{
		{"day", "2026-03-04T05:06:07Z", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"},
		{"day", "2026-03-04T00:00:00Z", "2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z"},
		{"day", "2026-03-03T23:59:59Z", "2026-03-03T00:00:00Z", "2026-03-04T00:00:00Z"},
		// days of 23 and 25 hours
		{"day in Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"day in Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"day in America/New_York", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"day in America/New_York", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"day in Asia/Kathmandu", "2026-05-01T18:14:59Z", "2026-04-30T18:15:00Z", "2026-05-01T18:15:00Z"},
		{"day in Asia/Kolkata", "2026-05-01T18:30:00Z", "2026-05-01T18:30:00Z", "2026-05-02T18:30:00Z"},
		// a change of half an hour
		{"day in Australia/Lord_Howe", "2026-04-05T00:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		// midnight does not exist: the clocks go from 24:00 to 01:00
		{"day in America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		// the last hour of Saturday comes twice
		{"day in America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		// midnight comes twice on one day
		{"day in America/Havana", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		// Sunday begins, and a minute later it is Saturday again: Sunday stays begun
		{"day in America/St_Johns", "2010-11-07T02:31:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"day in America/St_Johns", "2010-11-07T02:29:59Z", "2010-11-06T02:30:00Z", "2010-11-07T02:30:00Z"},
		{"day in America/St_Johns", "2010-11-07T03:00:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		// 30 December 2011 did not exist
		{"day in Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"day in Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"month in Pacific/Apia from day 30", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"},
		// the 23rd is a Monday
		{"week", "2026-11-23T10:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"week", "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{"week from day 7", "2026-11-22T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"week from day 7", "2026-11-21T23:59:59Z", "2026-11-15T00:00:00Z", "2026-11-22T00:00:00Z"},
		{"week in Europe/Berlin", "2026-10-20T00:00:00Z", "2026-10-18T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"month", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"month", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		// 31 days and an hour
		{"month in Europe/Berlin", "2026-10-31T22:59:59Z", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"},
		{"month in Europe/Berlin from day 15", "2026-03-20T00:00:00Z", "2026-03-14T23:00:00Z", "2026-04-14T22:00:00Z"},
		{"month from day 31", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"month from day 31", "2026-02-27T23:59:59Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"month from day 31", "2028-02-28T12:00:00Z", "2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"month from day 31", "2026-04-30T00:00:00Z", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z"},
		{"month from day 30", "2026-01-01T00:00:00Z", "2025-12-30T00:00:00Z", "2026-01-30T00:00:00Z"},
	} {
		begin, end := endsOfWindow(t, Limiter{}, "1 per calendar "+test.spec+" by ip").Span(unix(t, test.now))
		if begin != unix(t, test.begin) || end != unix(t, test.end) {
			t.Errorf("%s at %s: %s to %s, want %s to %s", test.spec, test.now,
				time.Unix(begin, 0).UTC().Format(time.RFC3339), time.Unix(end, 0).UTC().Format(time.RFC3339), test.begin, test.end)
		}
	}
}

func TestAnAlignedWindowEndsAtAMultipleOfItsLength(t *testing.T) {
	for _, test := range []struct {
		spec       string
		now        int64
		begin, end int64
	}{
		{"1 per minute by ip", 119, 60, 120},
		{"1 per minute by ip", 120, 120, 180},
		{"1 per 7 seconds by ip", 1_800_000_000, 1_800_000_000 - 1_800_000_000%7, 1_800_000_000 - 1_800_000_000%7 + 7},
		{"1 per day by ip", unix(t, "2026-11-23T10:00:00Z"), unix(t, "2026-11-23T00:00:00Z"), unix(t, "2026-11-24T00:00:00Z")},
		{"1 per minute by ip", 0, 0, 60},
		{"1 per minute by ip", -1, -60, 0},
	} {
		if begin, end := endsOfWindow(t, Limiter{Align: AlignClock}, test.spec).Span(test.now); begin != test.begin || end != test.end {
			t.Errorf("%s at %d: %d to %d, want %d to %d", test.spec, test.now, begin, end, test.begin, test.end)
		}
	}
	if endsOfWindow(t, Limiter{}, "1 per minute by ip") != nil {
		t.Error("a window that is not aligned ends by the clock")
	}
}

func TestACalendarIsSpelledInOneWay(t *testing.T) {
	for spec, want := range map[string]string{
		"100 per calendar month in Europe/Berlin from day 15 by token": "100 per calendar month in Europe/Berlin from day 15 by token",
		"100  per calendar  month in UTC from day 1 by token":          "100 per calendar month by token",
		"5 per calendar week from day 7 by ip":                         "5 per calendar week from day 7 by ip",
		"5 per calendar day in America/Argentina/Buenos_Aires by ip":   "5 per calendar day in America/Argentina/Buenos_Aires by ip",
		"5 per calendar day in Etc/GMT+5 by session or ip+agent":       "5 per calendar day in Etc/GMT+5 by session or ip+agent",
		"5 per calendar month from day 0031 by ip":                     "5 per calendar month from day 31 by ip",
	} {
		w, err := ParseWindow(spec)
		if err != nil || w.String() != want {
			t.Errorf("%q is spelled %q, want %q; %v", spec, w, want, err)
		}
	}
}

func TestACalendarThatIsNoneIsExplained(t *testing.T) {
	for spec, want := range map[string]string{
		"5 per calendar month in europe/berlin by ip":       `did you mean Europe/Berlin?`,
		"5 per calendar month in Berlin by ip":              `did you mean Europe/Berlin?`,
		"5 per calendar month in new_york by ip":            `did you mean America/New_York?`,
		"5 per calendar month in utc by ip":                 `did you mean UTC?`,
		"5 per calendar month in Local by ip":               `another one on each machine`,
		"5 per calendar month in Mars/Phobos by ip":         `zone "Mars/Phobos" is unknown`,
		"5 per calendar month in ../etc/passwd by ip":       `is unknown`,
		"5 per calendar month in right/UTC by ip":           `is unknown`,
		"5 per calendar month in posix/Europe/Berlin by ip": `is unknown`,
		"5 per calendar month in by ip":                     `UNIT is day, week or month`,
		"5 per calendar by ip":                              `UNIT is day, week or month`,
		"5 per calendar year by ip":                         `day, week and month are allowed`,
		"5 per calendar months by ip":                       `day, week and month are allowed`,
		"5 per 2 calendar months by ip":                     `a window is LIMIT [requests] per [N] UNIT`,
		"5 per calendar month from day 32 by ip":            `day 1 to 31`,
		"5 per calendar month from day 0 by ip":             `day 1 to 31`,
		"5 per calendar month from day -1 by ip":            `day 1 to 31`,
		"5 per calendar week from day 8 by ip":              `1 (Monday) to 7`,
		"5 per calendar day from day 2 by ip":               `only a week and a month`,
		"5 per calendar month from day 2 in UTC by ip":      `UNIT is day, week or month`,
	} {
		_, err := ParseWindow(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", spec, err, want)
		}
	}
}

// Two windows whose ends differ are two windows. One that ends after its first request has the
// bytes that it had before there were others.
func TestWindowsWithOtherEndsHaveOtherKeys(t *testing.T) {
	scope := func(l Limiter, spec string) string {
		t.Helper()
		l.Name = "l"
		w, err := ParseWindow(spec)
		if err != nil {
			t.Fatal(err)
		}
		l.Windows = []Window{w}
		c, problems := compile(Policy{Limiters: []Limiter{l}}, nil)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return string(c.named["l"].scopes[0])
	}
	if got, want := scope(Limiter{}, "5 per minute by ip"), "\x01l\x00\x00\x00\x3c\x00\x02ip"; got != want {
		t.Errorf("the scope of a window is %q, want %q", got, want)
	}
	gold := Plans{By: tokenSource, List: []Plan{{Name: "gold", Rates: []Rate{{9, CalendarMonth.length(), CalendarMonth, false}}}}}
	if month := "5 per calendar month by ip"; scope(Limiter{}, month) != scope(Limiter{Plans: gold}, month) {
		t.Error("plans change the scope of a window")
	}
	seen := map[string]string{}
	for _, spec := range []string{
		"5 per day by ip", "5 per 7 days by ip", "5 per 31 days by ip",
		"5 per calendar day by ip", "5 per calendar week by ip", "5 per calendar month by ip",
		"5 per calendar month in Europe/Berlin by ip", "5 per calendar month in Europe/Paris by ip",
		"5 per calendar month in Europe/Berlin from day 2 by ip", "5 per calendar month from day 2 by ip", "5 per calendar month from day 3 by ip",
	} {
		for _, align := range []Align{AlignRequest, AlignClock} {
			s := scope(Limiter{Align: align}, spec)
			if other := seen[s]; other != "" && !(other == spec && strings.Contains(spec, "calendar")) {
				t.Errorf("%q aligned by %v has the scope of %q", spec, align, other)
			}
			seen[s] = spec
		}
	}
}

func TestAnOverrideNamesACalendarByItsUnit(t *testing.T) {
	o, err := ParseOverride("500 per calendar month for 192.0.2.7")
	if err != nil || o.String() != "500 per calendar month for 192.0.2.7" {
		t.Fatalf("%v, %v", o, err)
	}
	for spec, want := range map[string]bool{
		"5 per calendar month in Europe/Berlin from day 15 by ip": true,
		"5 per calendar month by ip":                              true,
		"5 per 31 days by ip":                                     false,
		"5 per calendar week by ip":                               false,
		"5 per calendar month by everyone":                        false,
	} {
		w, err := ParseWindow(spec)
		if err != nil || o.Changes(&w) != want {
			t.Errorf("%v changes %q: %v, want %v; %v", o, spec, !want, want, err)
		}
	}
	if _, err := ParseOverride("500 per calendar month in Europe/Berlin for 192.0.2.7"); err == nil || !strings.Contains(err.Error(), "500 per calendar month for WHO") {
		t.Errorf("an override with a zone: %v", err)
	}
}

func TestThePolicyRejectsACalendarThatIsNotValid(t *testing.T) {
	key := Key{{"ip"}}
	month := Window{Limit: 1, Per: 31 * 24 * time.Hour, Calendar: Calendar{Unit: CalendarMonth}, Key: key}
	for what, change := range map[string]func(*Limiter){
		"a zone that does not exist": func(l *Limiter) { l.Windows[0].Calendar.Zone = "Mars/Phobos" },
		"a day after the last":       func(l *Limiter) { l.Windows[0].Calendar.Day = 32 },
		"a unit that is none":        func(l *Limiter) { l.Windows[0].Calendar.Unit = 9 },
		"a zone without a unit":      func(l *Limiter) { l.Windows[0].Calendar = Calendar{Zone: "UTC"} },
		"another length":             func(l *Limiter) { l.Windows[0].Per = time.Hour },
		"an align that is none":      func(l *Limiter) { l.Align = 9 },
		"the same calendar twice":    func(l *Limiter) { l.Windows = append(l.Windows, month) },
	} {
		l := Limiter{Name: "l", Windows: []Window{month}}
		if problems := (Policy{Limiters: []Limiter{l}}).Problems(nil); len(problems) > 0 {
			t.Fatal(problems)
		}
		change(&l)
		if problems := (Policy{Limiters: []Limiter{l}}).Problems(nil); len(problems) == 0 {
			t.Errorf("%s is accepted", what)
		}
	}
}
