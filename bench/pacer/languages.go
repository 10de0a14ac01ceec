package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// A language is what a process of callers is written in. The processes of all languages take a job
// and give a report in the same form.
type language int

const (
	golang language = iota
	javascript
	php
	browser // javascript in tabs
)

// scripts is the folder of the callers in other languages, below the directory that the benchmarks
// run in.
const scripts = "pacer/callers"

// program returns the command of a process of callers.
func (l language) program() ([]string, error) {
	switch l {
	case javascript:
		return []string{"node", filepath.Join(scripts, "caller.mjs")}, nil
	case php:
		return []string{"php", filepath.Join(scripts, "caller.php")}, nil
	}
	self, err := os.Executable()
	return []string{self, childFlag}, err
}

// callers names the callers of a language's table.
func (l language) callers() string {
	return map[language]string{golang: "64 goroutines of one process", javascript: "64 calls at a time of one Node process", php: "8 PHP processes of 8 calls at a time"}[l]
}

// installScripts installs the packages of the callers in JavaScript, if one of the cases needs
// them.
func installScripts(ctx context.Context, chosen []scene) error {
	for _, s := range chosen {
		if s.language != javascript {
			continue
		}
		install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent")
		install.Dir, install.Stderr = scripts, os.Stderr
		if err := install.Run(); err != nil {
			return fmt.Errorf("install the packages of %s: npm ci: %w", scripts, err)
		}
		return nil
	}
	return nil
}

// client is the folder of the client in JavaScript, as scripts is.
const client = "../clients/js"

// runTabs runs the jobs in tabs of one headless browser. The first tab opens the others. The tabs
// load their page, take their jobs and post their reports through the server, as paths without a
// limit, so that they have its origin.
func runTabs(ctx context.Context, s *server, jobs []job) (all report, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobs[0].Within+20*time.Second)
	defer cancel()
	reports := make(chan report, len(jobs))
	s.upstream.page(tabPage(jobs, reports))
	profile, err := os.MkdirTemp("", "weir-bench-tabs")
	if err != nil {
		return all, err
	}
	defer os.RemoveAll(profile)
	chromium := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-popup-blocking",
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--remote-debugging-port=0",
		"--user-data-dir="+profile, s.url+"/bench/tab.html?tab=0")
	if err := chromium.Start(); err != nil {
		return all, fmt.Errorf("start chromium: %w", err)
	}
	for range jobs {
		select {
		case r := <-reports:
			all.add(r)
		case <-ctx.Done():
			err = errors.Join(err, errors.New("a tab did not report in time"))
		}
	}
	cancel() // kills chromium by its process id
	chromium.Wait()
	return all, err
}

// tabPage serves the tabs.
func tabPage(jobs []job, reports chan<- report) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/bench/", http.StripPrefix("/bench/", http.FileServer(http.Dir(filepath.FromSlash(scripts)))))
	mux.Handle("/bench/js/", http.StripPrefix("/bench/js/", http.FileServer(http.Dir(filepath.FromSlash(client)))))
	tab := func(r *http.Request) (int, bool) {
		n, err := strconv.Atoi(r.URL.Query().Get("tab"))
		return n, err == nil && n >= 0 && n < len(jobs)
	}
	mux.HandleFunc("/bench/job", func(w http.ResponseWriter, r *http.Request) {
		n, ok := tab(r)
		if !ok {
			http.NotFound(w, r)
			return
		}
		json.NewEncoder(w).Encode(jobs[n])
	})
	mux.HandleFunc("/bench/report", func(w http.ResponseWriter, r *http.Request) {
		var one report
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reports <- one
	})
	return mux
}
