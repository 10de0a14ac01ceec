package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
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
	run     string            // the server's run id, which changes with each start; empty on a cluster
}

const markerName = ":marker" // behind the prefix

// lookForLoss compares the markers with those that were seen last, and says so if counters are
// gone.
func (s *Store) lookForLoss(ctx context.Context, client rueidis.Client) error {
	names, run := []string{s.prefix + markerName}, ""
	if client.Mode() == rueidis.ClientModeCluster {
		names = make([]string, pings)
		for i := range names {
			names[i] = fmt.Sprintf("%s%s{trial%d}", s.prefix, markerName, i)
		}
	} else {
		info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
		if err != nil {
			return s.denied(ctx, client, err)
		}
		run = field(info, "run_id")
	}
	found, err := s.readMarkers(ctx, client, names)
	if err != nil {
		return s.denied(ctx, client, err)
	}
	lost := 0
	for name, marker := range found {
		if was := s.losses.markers[name]; was != "" && was != marker {
			lost++
		}
	}
	if lost > 0 {
		s.losses.count.Add(1)
		reason := "its keys were deleted, as by FLUSHALL, or evicted"
		if run != s.losses.run {
			reason = "it was started without its data, or another server has taken its place"
		}
		s.log.Error("the store has lost its counters: its windows begin anew, so a limit can pass once more",
			"store", s.where, "reason", reason, "lost", fmt.Sprintf("%d of %d parts", lost, len(names)))
	}
	s.losses.markers, s.losses.run = found, run
	return nil
}

// readMarkers returns the markers, after it has written those that are missing.
func (s *Store) readMarkers(ctx context.Context, client rueidis.Client, names []string) (map[string]string, error) {
	var commands []rueidis.Completed
	for _, name := range names {
		commands = append(commands,
			client.B().Set().Key(name).Value(rand.Text()).Nx().Ex(secretLasts).Build(),
			client.B().Getex().Key(name).Ex(secretLasts).Build())
	}
	found := make(map[string]string, len(names))
	for i, reply := range client.DoMulti(ctx, commands...) {
		text, err := reply.ToString()
		switch {
		case err != nil && !rueidis.IsRedisNil(err):
			return nil, err
		case i%2 == 1 && err == nil:
			found[names[i/2]] = text
		}
	}
	return found, nil
}
