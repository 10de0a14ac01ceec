package redistest_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
)

func text(t *testing.T, s *redistest.Server, args ...string) string {
	t.Helper()
	m := s.Do(t, args...)
	answer, err := m.ToString()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return answer
}

func TestAServerAnswersAndForgetsWhenItRestarts(t *testing.T) {
	s := redistest.Start(t)
	addr, pid := s.Addr(), s.Pid()
	s.Do(t, "SET", "a", "1")
	if got := text(t, s, "GET", "a"); got != "1" {
		t.Errorf("GET = %q, want 1", got)
	}
	s.Restart(t)
	if m := s.Do(t, "GET", "a"); !m.IsNil() {
		t.Error("a server that keeps nothing on disk kept a key")
	}
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("the server was at %s as process %d, is at %s as %d", addr, pid, s.Addr(), s.Pid())
	}
}

func TestAServerThatKeepsAFileRemembersAfterACrash(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s.Do(t, "SET", "a", "1")
	s.Kill()
	if err := s.Try("PING").Error(); err == nil {
		t.Error("a server that was killed answers")
	}
	s.Restart(t)
	if got := text(t, s, "GET", "a"); got != "1" {
		t.Errorf("GET = %q, want 1", got)
	}
}

func TestAServerHasItsPassword(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "p/w")
	if got := text(t, s, "PING"); got != "PONG" {
		t.Errorf("PING = %q", got)
	}
	if want := "redis://:p%2Fw@" + s.Addr(); s.URL() != want {
		t.Errorf("URL = %s, want %s", s.URL(), want)
	}
}

func TestScriptsAreCounted(t *testing.T) {
	s := redistest.Start(t)
	if n := s.Commands(t); n != 0 {
		t.Errorf("a new server counts %d scripts", n)
	}
	s.Do(t, "EVAL", "return 1", "0")
	s.Do(t, "EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0")
	s.Do(t, "PING")
	if n := s.Commands(t); n != 2 {
		t.Errorf("two scripts are counted as %d", n)
	}
	if s.CPU(t) <= 0 {
		t.Error("they used no processor time")
	}
}
