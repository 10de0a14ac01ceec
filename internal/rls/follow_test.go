package rls

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/logtest"
	"github.com/weirlimit/weir/internal/rls/config"
)

func TestAnEmptyDirectoryAdmitsAndIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "edge.yaml")
		if err := os.WriteFile(path, []byte(edge), 0o644); err != nil {
			t.Fatal(err)
		}
		s := newService(t, Options{})
		log := new(logtest.Buffer)
		s.options.Log = slog.New(slog.NewTextHandler(log, nil))
		files, err := s.Load(dir, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Follow(ctx, dir, config.Options{}, files)
		}()
		step := func(want string) {
			t.Helper()
			<-time.After(10 * time.Second)
			synctest.Wait()
			text := log.Take()
			warned := strings.Contains(text, "level=WARN") && strings.Contains(text, "no request is limited")
			if got := s.Loaded(); got != want || warned != strings.HasPrefix(want, "0") {
				t.Errorf("%s, want %s, and a warning if it has none: %s", got, want, text)
			}
		}
		step("1 domain, 11 limits")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		step("0 domains, 0 limits")
		if _, err := s.Load(dir, config.Options{}); err != nil {
			t.Fatal(err)
		}
		step("0 domains, 0 limits") // as at a start
		if err := s.Use(nil, "the control plane at example.com:18000", config.Options{}); err != nil {
			t.Fatal(err)
		}
		step("0 domains, 0 limits")
		if answer := ask(t, s, "tight=a +5"); !strings.HasPrefix(answer, "OK") {
			t.Error(answer)
		}
		stop()
		<-ended
	})
}
