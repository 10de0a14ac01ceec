package rls

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		var log bytes.Buffer
		s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
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
			warned := strings.Contains(log.String(), "level=WARN") && strings.Contains(log.String(), "no request is limited")
			if got := s.Loaded(); got != want || warned != strings.HasPrefix(want, "0") {
				t.Errorf("%s, want %s, and a warning if it has none: %s", got, want, &log)
			}
			log.Reset()
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
		if answer := ask(t, s, "tight=a +5"); !strings.HasPrefix(answer, "OK") {
			t.Error(answer)
		}
		stop()
		<-ended
	})
}
