package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The systemd units of the examples have the same hardening and the same settings,
// and use flags that exist.
func TestTheUnitsOfTheExamplesAgree(t *testing.T) {
	var first string
	for _, path := range []string{"systemd/weir.service", "scale/weir.service"} {
		b, err := os.ReadFile(filepath.Join(repository, "examples", path))
		if err != nil {
			t.Fatal(err)
		}
		unit := string(b)
		_, hardening, ok := strings.Cut(unit, "\nDynamicUser=")
		if !ok || !strings.Contains(hardening, "NoNewPrivileges=yes") {
			t.Fatalf("%s: no hardening from DynamicUser= on", path)
		}
		if first == "" {
			first = hardening
		}
		if hardening != first {
			t.Errorf("%s has another hardening than the first unit:\n%s", path, hardening)
		}
		for _, line := range []string{"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "WatchdogSec=30", "Restart=always"} {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("%s has no line %s", path, line)
			}
		}
		_, command, _ := strings.Cut(unit, "\nExecStart=/usr/local/bin/weir serve ")
		command, _, _ = strings.Cut(command, "\n")
		if err := newServe(nil).ParseFlags(strings.Fields(command)); command == "" || err != nil {
			t.Errorf("%s: ExecStart %q: %v", path, command, err)
		}
		if held := strings.HasPrefix(path, "systemd"); held == strings.Contains(command, "--listen") {
			t.Errorf("%s: a server with a socket unit needs no --listen, and one without does: %s", path, command)
		}
	}
}
