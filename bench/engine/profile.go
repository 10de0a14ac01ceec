package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// A profiler collects CPU profiles of Weir in all cases of a run, for the compiler (-pgo).
type profiler struct {
	file  string   // the merged profile
	parts []string // one of each case
}

// record runs one more turn while the contestant's process records a CPU profile of itself.
func (f *profiler) record(ctx context.Context, p plan, w *world, c benchCase, e entrant) error {
	token, err := os.ReadFile(e.server.token)
	if err != nil {
		return fmt.Errorf("profile %s: %w", e.name, err)
	}
	part := filepath.Join(w.dir, fmt.Sprintf("profile%d", len(f.parts)))
	seconds := max(1, int(p.length/time.Second))
	asked := make(chan error, 1)
	go func() {
		url := fmt.Sprintf("http://%s/profile/cpu?seconds=%d", e.server.admin, seconds)
		asked <- fetch(ctx, url, strings.TrimSpace(string(token)), part)
	}()
	_, err = p.turn(ctx, w, c, &e)
	if err := errors.Join(err, <-asked); err != nil {
		return fmt.Errorf("profile %s: %w", c.name, err)
	}
	f.parts = append(f.parts, part)
	return nil
}

// fetch writes what a URL of the admin API answers to a file.
func fetch(ctx context.Context, url, token, file string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, b)
	}
	return os.WriteFile(file, b, 0o600)
}

// write merges the profiles into one, without the time and the place where they were recorded.
func (f *profiler) write() error {
	if len(f.parts) == 0 {
		return errors.New("no case was profiled: choose cases that do not need a new process for each turn, and a contestant that is weir")
	}
	var all []*profile.Profile
	for _, part := range f.parts {
		b, err := os.ReadFile(part)
		if err != nil {
			return err
		}
		one, err := profile.ParseData(b)
		if err != nil {
			return fmt.Errorf("read a profile: %w", err)
		}
		all = append(all, one)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return fmt.Errorf("merge the profiles: %w", err)
	}
	merged.TimeNanos = 0
	for _, m := range merged.Mapping {
		m.File = "weir"
	}
	file, err := os.Create(f.file)
	if err != nil {
		return err
	}
	return errors.Join(merged.Write(file), file.Close())
}
