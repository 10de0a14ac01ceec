package main

import (
	"slices"
	"strings"
	"testing"
)

// HAProxy is wherever nginx is, and nothing leaves out the two.
func TestHAProxyIsInEveryTableOfNginx(t *testing.T) {
	for _, c := range cases() {
		if slices.Contains(c.left, nginxName) || slices.Contains(c.left, haproxyName) {
			t.Errorf("%s leaves out %q", c.name, c.left)
		}
	}
	var starts []string
	for _, c := range (&world{engines: true}).contestants() {
		starts = append(starts, c.name)
	}
	if !slices.Equal(starts, slices.DeleteFunc(names(), func(name string) bool { return name == soleName })) {
		t.Errorf("contestants are %q, and the tables have %q", starts, names())
	}
}

// The cases that are measured without access logs differ from the others in nothing else, and each
// has a table.
func TestSilentCasesAreTheSameWithoutAccessLogs(t *testing.T) {
	w := &world{small: "127.0.0.1:1"}
	all, silent := cases(), 0
	for _, c := range all {
		name, ok := strings.CutSuffix(c.name, silentSuffix)
		if !ok {
			if c.setup(w).silent {
				t.Errorf("%s has no access log", c.name)
			}
			continue
		}
		silent++
		i := slices.IndexFunc(all, func(o benchCase) bool { return o.name == name })
		if i < 0 {
			t.Fatalf("%s has no case with access logs", c.name)
		}
		want := all[i].setup(w)
		want.silent = true
		if got := c.setup(w); got != want || c.rounds != all[i].rounds {
			t.Errorf("%s is %+v, want %+v", c.name, got, want)
		}
	}
	if silent != 10 {
		t.Errorf("%d cases are measured without access logs, want 10", silent)
	}
	text := taken(autoName, 1, 1).String()
	if n := strings.Count(text, ", without access logs:\n"); n != silent {
		t.Errorf("%d tables are without access logs, want %d", n, silent)
	}
}
