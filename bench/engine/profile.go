package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// A profiler collects CPU profiles of Weir in all cases of a run, for the compiler (-pgo).
type profiler struct {
	file  string             // the merged profile
	parts []*profile.Profile // one of each case
}

// record runs one more turn while the contestant's process records a CPU profile of itself.
func (f *profiler) record(ctx context.Context, p plan, w *world, c benchCase, e entrant) error {
	token, err := os.ReadFile(e.server.token)
	if err != nil {
		return fmt.Errorf("profile %s: %w", e.name, err)
	}
	url := fmt.Sprintf("http://%s/profile/cpu?seconds=%d", e.server.admin, max(1, int(p.length/time.Second)))
	var part *profile.Profile
	asked := make(chan error, 1)
	go func() {
		var err error
		part, err = fetch(ctx, url, strings.TrimSpace(string(token)))
		asked <- err
	}()
	_, err = p.turn(ctx, w, c, &e)
	if err := errors.Join(err, <-asked); err != nil {
		return fmt.Errorf("profile %s: %w", c.name, err)
	}
	f.parts = append(f.parts, part)
	return nil
}

// fetch returns the profile that a URL of the admin API answers.
func fetch(ctx context.Context, url, token string) (*profile.Profile, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", url, response.Status, b)
	}
	return profile.ParseData(b)
}

// write merges the profiles into one, without the time and the place where they were recorded.
func (f *profiler) write() error {
	if len(f.parts) == 0 {
		return errors.New("no case was profiled: choose cases that do not need a new process for each turn, and a contestant that is weir")
	}
	merged, err := profile.Merge(f.parts)
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
