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
	// runs are those of the machines by address, as of the last time when every marker was read.
	runs map[string]run
	last map[string]run // by address, as last read
}

// A run is what tells a machine that has kept every count from one that has not.
type run struct {
	id      string // new with each start
	history string // new with each promotion
	evicted string // the number of keys that it has evicted
	evicts  bool   // it evicts keys when its memory is full
}

// What is seen of a server is what settle.lua compares.
type seen struct {
	marker  string
	evicted string // "" if it evicts nothing
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
	for address, r := range runs {
		if was, ok := s.losses.last[address]; ok && (was.id != r.id || was.history != r.history || was.evicted != r.evicted) {
			s.epoch.endOf(address)
			s.epoch.answers(address)
		}
	}
	found := s.readMarkers(ctx, client, names)
	lost := 0
	for name, marker := range found {
		if was := s.losses.markers[name]; was != "" && was != marker {
			lost++
		}
	}
	if lost > 0 {
		s.losses.count.Add(1)
		s.epoch.replace()
		s.held.renewSoon()
		reason := "its keys were deleted, as by FLUSHALL, or evicted"
		for address, run := range runs {
			if was := s.losses.runs[address].id; was != "" && was != run.id {
				reason = "it was started without its data, or another server has taken its place"
			}
		}
		s.log.Error("the store lost its counters: its windows start from zero, so callers can use their limits again",
			"store", s.addresses, "reason", reason, "lost", fmt.Sprintf("%d of %d parts", lost, len(names)))
	}
	if s.losses.markers == nil {
		s.losses.markers, s.losses.runs, s.losses.last = make(map[string]string), make(map[string]run), make(map[string]run)
	}
	maps.Copy(s.losses.markers, found)
	maps.Copy(s.losses.last, runs)
	if len(found) == len(names) { // otherwise a machine may answer whose markers have not been read
		maps.Copy(s.losses.runs, runs)
	}
	s.see(client)
}

// see keeps what settle.lua compares, after the epochs of earlier takes have ended: a settlement
// reads it before it compares the epochs. On a cluster nothing is compared.
func (s *Store) see(client rueidis.Client) {
	marker := s.losses.markers[s.prefix+markerName]
	if client.Mode() == rueidis.ClientModeCluster || marker == "" {
		return
	}
	next := &seen{marker: marker}
	if r := s.losses.last[""]; r.evicts {
		next.evicted = r.evicted
	}
	was := s.seen.Load()
	if was != nil && *was == *next {
		return
	}
	if was == nil {
		s.epoch.replace() // until now nothing would have shown a loss
	}
	s.seen.Store(next)
}

// readRuns returns the runs of the machines that answer, by address.
func (s *Store) readRuns(ctx context.Context, client rueidis.Client) map[string]run {
	var mu sync.Mutex
	var all sync.WaitGroup
	runs := make(map[string]run)
	for address, node := range nodes(client) {
		all.Go(func() {
			info, err := node.Do(ctx, node.B().Info().Build()).ToString()
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				policy := field(info, "maxmemory_policy")
				runs[address] = run{
					id: field(info, "run_id"), history: field(info, "master_replid"), evicted: field(info, "evicted_keys"),
					evicts: policy != "" && policy != "noeviction" && field(info, "maxmemory") != "0",
				}
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
