package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/internal/cli"
)

func TestTheEndOfAGrantIsATimeOrADuration(t *testing.T) {
	now := time.Date(2026, 3, 4, 15, 0, 0, 0, time.FixedZone("here", 3600))
	for end, want := range map[grantEnd]string{
		{until: "18:00"}:                fmt.Sprint("map[until:", now.Add(3*time.Hour).Unix(), "]"),
		{until: "15:00:01"}:             fmt.Sprint("map[until:", now.Unix()+1, "]"),
		{until: "2026-03-05T00:00:00Z"}: fmt.Sprint("map[until:", time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC).Unix(), "]"),
		{lasts: "2h"}:                   "map[for:2h]",
		{lasts: "1s"}:                   "map[for:1s]",
		{lasts: "8784h"}:                "map[for:8784h]",
	} {
		body := map[string]any{}
		if err := end.add(body, true, now); err != nil || fmt.Sprint(body) != want {
			t.Errorf("%+v: %v, %v, want %s", end, body, err, want)
		}
	}
	for _, s := range []string{"15:00", "14:59", "25:00", "tomorrow", "2h", "-2h", "0s", "2026-03-05", strings.Repeat("9", 8<<10)} {
		if err := (grantEnd{until: s}).add(map[string]any{}, true, now); err == nil {
			t.Errorf("--until %.40q is accepted", s)
		}
	}
	for _, s := range []string{"18:00", "-2h", "0s", "0.5s", "999ms", "8785h", "2", "2d", "forever", "9e99h"} {
		if err := (grantEnd{lasts: s}).add(map[string]any{}, true, now); err == nil || !strings.Contains(err.Error(), "expected a duration from 1s to 8784h") {
			t.Errorf("--for %.40q: %v", s, err)
		}
	}
	for _, bad := range []struct {
		end    grantEnd
		wanted bool
	}{{grantEnd{}, true}, {grantEnd{"2h", "18:00"}, true}, {grantEnd{lasts: "2h"}, false}, {grantEnd{until: "18:00"}, false}} {
		if err := bad.end.add(map[string]any{}, bad.wanted, now); err == nil {
			t.Errorf("%+v is accepted", bad)
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

func TestAKeyWithAPlanThatTheLimiterDoesNotHaveHasANote(t *testing.T) {
	var f keyFlags
	var out bytes.Buffer
	cmd := new(cobra.Command)
	cmd.SetOut(&out)
	if err := f.print(cmd, []byte(`{"kinds":"token","now":1,"windows":[{"limiter":"api","window":"5 per minute by token","limit":5,"declared":5,"unlisted_plan":"Gold"}]}`)); err != nil {
		t.Fatal(err)
	}
	if want := "its plan Gold is not one of the limiter's: this is the limit without one"; !strings.Contains(out.String(), want) {
		t.Errorf("%s lacks %q", &out, want)
	}
}
