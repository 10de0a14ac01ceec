package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// A losses watches whether the server still has what it had. A server that was emptied answers like
// any other, and nothing else tells that its windows have begun anew. It keeps a marker there, and
// on a cluster one for each of many slots; whoever finds a marker missing writes another one, so
// every process sees the change. Only the keeper uses it, but for count.
type losses struct {
	count   atomic.Int64
	markers map[string]string // by key, as they were seen last
	// runs are the run ids of the machines, which change with each start, by address, as they were
	// when all markers were seen last.
	runs map[string]string
}

const (
	markerName = ":marker" // behind the prefix
	markers    = 128       // of a cluster: each of up to 40 masters with slots in even parts has one
)

// lookForLoss compares the markers with those that were seen last, and says so if counters are gone.
// What cannot be read now is compared when it can be: it is no reason not to count.
func (s *Store) lookForLoss(ctx context.Context, client rueidis.Client) {
	names := []string{s.prefix + markerName}
	if client.Mode() == rueidis.ClientModeCluster {
		names = make([]string, markers)
		for i := range names {
			names[i] = fmt.Sprintf("%s%s{trial%d}", s.prefix, markerName, i)
		}
	}
	runs := s.readRuns(ctx, client)
	found := s.readMarkers(ctx, client, names)
	lost := 0
	for name, marker := range found {
		if was := s.losses.markers[name]; was != "" && was != marker {
			lost++
		}
	}
	if lost > 0 {
		s.losses.count.Add(1)
		reason := "its keys were deleted, as by FLUSHALL, or evicted"
		for address, run := range runs {
			if was := s.losses.runs[address]; was != "" && was != run {
				reason = "it was started without its data, or another server has taken its place"
			}
		}
		s.log.Error("the store has lost its counters: its windows begin anew, so a limit can pass once more",
			"store", s.where, "reason", reason, "lost", fmt.Sprintf("%d of %d parts", lost, len(names)))
	}
	if s.losses.markers == nil {
		s.losses.markers, s.losses.runs = make(map[string]string), make(map[string]string)
	}
	maps.Copy(s.losses.markers, found)
	if len(found) == len(names) { // else a machine may answer that has not told of its markers yet
		maps.Copy(s.losses.runs, runs)
	}
}

// readRuns returns the run ids of the machines that answer, by their addresses.
func (s *Store) readRuns(ctx context.Context, client rueidis.Client) map[string]string {
	var mu sync.Mutex
	var all sync.WaitGroup
	runs := make(map[string]string)
	for address, node := range nodes(client) {
		all.Go(func() {
			info, err := node.Do(ctx, node.B().Info().Section("server").Build()).ToString()
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				runs[address] = field(info, "run_id")
			}
		})
	}
	all.Wait()
	return runs
}

// readMarkers returns the markers that can be read, after it has written those that are missing.
func (s *Store) readMarkers(ctx context.Context, client rueidis.Client, names []string) map[string]string {
	var commands []rueidis.Completed
	for _, name := range names {
		commands = append(commands,
			client.B().Set().Key(name).Value(rand.Text()).Nx().Ex(secretLasts).Build(),
			client.B().Getex().Key(name).Ex(secretLasts).Build())
	}
	found := make(map[string]string, len(names))
	for i, reply := range client.DoMulti(ctx, commands...) {
		if text, err := reply.ToString(); i%2 == 1 && err == nil {
			found[names[i/2]] = text
		}
	}
	return found
}
