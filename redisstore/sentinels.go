package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/redis/rueidis"
)

// checkMaster returns an error if Sentinels name another master than the server at address. The
// client follows a master that has restarted, even while the Sentinels replace it: what is counted
// there has begun from nothing, and is dropped when it becomes a replica. A Sentinel that has not
// noticed yet, or does not answer, is no reason against a server.
func (s *Store) checkMaster(ctx context.Context, address string) error {
	if s.options.Master == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout/2)
	defer cancel()
	named := make(chan string, len(s.options.Addresses))
	for _, sentinel := range s.options.Addresses {
		go func() { named <- s.askSentinel(ctx, sentinel) }()
	}
	other := ""
	for range s.options.Addresses {
		switch is := <-named; is {
		case "":
		case address:
			return nil
		default:
			other = is
		}
	}
	if other == "" {
		return nil
	}
	return fmt.Errorf("connect to %s: it is no longer the master %q, because the Sentinels name %s", address, s.options.Master, other)
}

// askSentinel returns the address of the master that a Sentinel names, or "" if it does not answer.
func (s *Store) askSentinel(ctx context.Context, address string) string {
	o := s.clientOptions()
	o.InitAddress, o.Sentinel, o.ForceSingleClient = []string{address}, rueidis.SentinelOption{}, true
	o.Username, o.Password, o.SelectDB = s.options.SentinelUsername, s.options.SentinelPassword, 0
	o.Dialer.Timeout = asideDial
	o.DialCtxFn = func(_ context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		return s.dial(ctx, address, d, config)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return ""
	}
	defer client.Close()
	parts, err := client.Do(ctx, client.B().SentinelGetMasterAddrByName().Master(s.options.Master).Build()).AsStrSlice()
	if err != nil || len(parts) != 2 {
		return ""
	}
	return net.JoinHostPort(parts[0], parts[1])
}
