package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cli"
)

func TestUntilIsATimeOrADuration(t *testing.T) {
	now := time.Date(2026, 3, 4, 15, 0, 0, 0, time.FixedZone("here", 3600))
	for s, want := range map[string]string{
		"18:00":                fmt.Sprint("until ", now.Add(3*time.Hour).Unix()),
		"15:00:01":             fmt.Sprint("until ", now.Unix()+1),
		"2026-03-05T00:00:00Z": fmt.Sprint("until ", time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC).Unix()),
		"2h":                   "for 2h",
	} {
		t.Run(s, func(t *testing.T) {
			field, value, err := parseUntil(s, now)
			if got := fmt.Sprint(field, " ", value); err != nil || got != want {
				t.Errorf("%q: %s, %v, want %s", s, got, err, want)
			}
		})
	}
	for _, s := range []string{"", "15:00", "14:59", "25:00", "tomorrow", "-2h", "0s", "2026-03-05", strings.Repeat("9", 8<<10)} {
		if field, value, err := parseUntil(s, now); err == nil {
			t.Errorf("%.40q: %s %v", s, field, value)
		}
	}
}

func TestAnAdminAddressIsHostAndPortOrAURL(t *testing.T) {
	for value, want := range map[string]string{
		"127.0.0.1:8081": "http://127.0.0.1:8081", ":9000": "http://127.0.0.1:9000", "0.0.0.0:9000": "http://127.0.0.1:9000", "[::]:9000": "http://127.0.0.1:9000",
		"http://ops.example.com:9000/": "http://ops.example.com:9000", "https://ops.example.com": "https://ops.example.com:443",
		"": "", "off": "", "127.0.0.1:0": "",
	} {
		t.Run(value, func(t *testing.T) {
			var f operatorFlags
			if err := f.admin.Set(value); err != nil {
				t.Errorf("%q: %v", value, err)
			}
			if got, err := f.base(); got != want || (err != nil) != (want == "") {
				t.Errorf("%q: %q, %v, want %q", value, got, err, want)
			}
		})
	}
	for _, value := range []string{"localhost", "ftp://a:1", "http://u:p@a:1", "http://a:1/x", "http://a:1?x", "a:99999", "http://", "a b:1"} {
		var a cli.AdminAddr
		if err := a.Set(value); err == nil {
			t.Errorf("%q is %v", value, a.String())
		}
	}
}
