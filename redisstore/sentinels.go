package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/rueidis"
)

// maxCheckMaster is how long a new connection waits for the Sentinels, if none of those that have
// answered names its server.
const maxCheckMaster = dialTimeout / 2

// checkMaster begins to ask the Sentinels whether the server at address is the master. The function
// that it returns waits for that, and returns an error if most of them name another, and none of
// those that answer in time names this one. The client follows a master that has restarted, even
// while the Sentinels replace it: what is counted there has begun from nothing, and is dropped when
// it becomes a replica.
func (s *Store) checkMaster(ctx context.Context, address string) (result func() error) {
	if s.options.Master == "" {
		return func() error { return nil }
	}
	ctx, cancel := context.WithTimeout(ctx, maxCheckMaster)
	all := s.options.Addresses
	answers := make(chan namedMaster, len(all))
	for _, sentinel := range all {
		go func() { answers <- s.askSentinel(ctx, sentinel) }()
	}
	return func() error {
		defer cancel()
		other, others, sentinels := "", 0, 0
		for range all {
			select {
			case n := <-answers:
				switch sentinels = max(sentinels, n.sentinels); n.address {
				case "":
				case address:
					return nil
				default:
					other = n.address
					others++
				}
			case <-ctx.Done():
				return nil
			}
		}
		if 2*others <= sentinels {
			return nil
		}
		return fmt.Errorf("connect to %s: it is no longer the master %q, because the Sentinels name %s", address, s.options.Master, other)
	}
}

// A namedMaster is what a Sentinel knows of the master.
type namedMaster struct {
	address   string // "" if it does not answer
	sentinels int    // that watch it
}

// askSentinel asks the Sentinel at address. It ends with ctx.
func (s *Store) askSentinel(ctx context.Context, address string) (n namedMaster) {
	o := s.asideOptions(address)
	o.Username, o.Password, o.SelectDB = s.options.SentinelUsername, s.options.SentinelPassword, 0
	client, err := s.connectAside(ctx, o)
	if err != nil {
		return n
	}
	defer func() { go client.Close() }()
	name := s.options.Master
	replies := client.DoMulti(ctx,
		// this names the promoted replica as soon as there is one
		client.B().SentinelGetMasterAddrByName().Master(name).Build(),
		client.B().Arbitrary("SENTINEL", "MASTER", name).Build())
	parts, err := replies[0].AsStrSlice()
	if err != nil || len(parts) != 2 {
		return n
	}
	about, err := replies[1].AsStrMap()
	if err != nil {
		return n
	}
	known, _ := strconv.Atoi(about["num-other-sentinels"])
	return namedMaster{net.JoinHostPort(parts[0], parts[1]), known + 1}
}

// connectAside connects a client that counts nothing. It ends with ctx.
func (s *Store) connectAside(ctx context.Context, o rueidis.ClientOption) (rueidis.Client, error) {
	o.DialCtxFn = func(_ context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		return s.dial(ctx, address, d, config)
	}
	return rueidis.NewClient(o)
}
