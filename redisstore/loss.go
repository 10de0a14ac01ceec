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

// A losses detects that the server has lost its data. A server that was emptied answers as before,
// and its windows begin anew. So the store keeps a marker there, on a cluster one in each of many
// slots. A process that finds a marker missing writes a new one, so that every process sees the
// change. Only maintain uses the other fields than count.
type losses struct {
	count   atomic.Int64
	markers map[string]string // by key, as last read
	// runs are the run ids of the machines by address, as of the last time when every marker was
	// read. A run id is new with each start.
	runs map[string]string
}

const (
	markerName = ":marker" // after the prefix
	// of a cluster: enough for one on each of up to 40 masters with even shares of the slots
	markers = 128
)

// checkLoss compares the markers with those of the last read, and logs lost counters as an error. A
// marker that cannot be read now is compared later; that is no reason not to count.
func (s *Store) checkLoss(ctx context.Context, client rueidis.Client) {
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
		s.epoch.end()
		s.held.renewSoon()
		reason := "its keys were deleted, as by FLUSHALL, or evicted"
		for address, run := range runs {
			if was := s.losses.runs[address]; was != "" && was != run {
				reason = "it was started without its data, or another server has taken its place"
			}
		}
		s.log.Error("the store lost its counters: its windows start from zero, so callers can use their limits again",
			"store", s.addresses, "reason", reason, "lost", fmt.Sprintf("%d of %d parts", lost, len(names)))
	}
	if s.losses.markers == nil {
		s.losses.markers, s.losses.runs = make(map[string]string), make(map[string]string)
	}
	maps.Copy(s.losses.markers, found)
	if len(found) == len(names) { // otherwise a machine may answer whose markers have not been read
		maps.Copy(s.losses.runs, runs)
	}
}

// readRuns returns the run ids of the machines that answer, by address.
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

// readMarkers writes the markers that are missing, and returns those that can be read.
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
