package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The cost of a file: the same decisions with the counts in a file, on tmpfs and on a disk, and how
// soon a store decides again after its process was killed.

// reopen measures the time from opening a store to its first decision. Each key had one unit, which
// was spent before the kill, so the decision must be a refusal.
func (c *child) reopen(r request, figures map[string]float64) error {
	if err := c.open(r); err != nil {
		return err
	}
	if c.store.worker()(newKey(uint64(c.setup.Keys / 2))[:]) {
		return fmt.Errorf("a key that had spent its limit before the kill was allowed after it")
	}
	figures["ms"] = time.Since(c.opened).Seconds() * 1000
	return nil
}

// kill fills a store with one unit a key, kills its process, and opens it in another.
func kill(name string, s setup) (map[string]float64, error) {
	holder, err := startWith(name, s)
	if err != nil {
		return nil, err
	}
	_, err = holder.ask(request{Do: "fill", To: s.Keys})
	holder.kill()
	if err != nil {
		return nil, err
	}
	heir, err := start(name)
	if err != nil {
		return nil, err
	}
	defer heir.stop()
	return heir.ask(request{Do: "reopen", Contestant: name, Setup: s})
}

// places are the directories for files, by contestant.
type places map[string]string

// makePlaces makes a directory on tmpfs and one on the disk that holds at. remove removes both.
func makePlaces(at string) (p places, remove func(), err error) {
	p = places{}
	remove = func() {
		for _, dir := range p {
			os.RemoveAll(dir)
		}
	}
	for name, parent := range map[string]string{shmName: "/dev/shm", diskName: at} {
		if p[name], err = os.MkdirTemp(parent, "weir-peers"); err != nil {
			remove()
			return nil, nil, fmt.Errorf("make a place for files: %w", err)
		}
	}
	return p, remove, nil
}

// file removes a contestant's old file and returns its path, or "" if it keeps no file.
func (p places) file(name string) string {
	dir, ok := p[name]
	if !ok {
		return ""
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range left {
		os.RemoveAll(f)
	}
	return filepath.Join(dir, "counters")
}
