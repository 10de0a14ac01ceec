package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// MasterName is the name under which Sentinels know their master.
const MasterName = "weir"

// A Sentinel is a master with two replicas, and three Sentinels that watch it.
type Sentinel struct {
	Nodes     []*Server // initially the first is the master
	Sentinels []*Server
}

// StartSentinel returns when the Sentinels know each other and the replicas are in sync. A master
// that does not answer for three seconds counts as failed: on a busy machine one that is healthy
// may not answer for half a second, and would be replaced too. The Sentinels poll more often than
// usual, so that tests are fast. A node that is restarted has its initial role until the Sentinels
// change it.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	return startSentinel(t, nil)
}

// StartSentinelIn is StartSentinel with each process on a host of its own. The Clocks of Nodes run;
// the Sentinels have the system's.
func StartSentinelIn(t testing.TB, n *Network) *Sentinel {
	t.Helper()
	return startSentinel(t, n)
}

func startSentinel(t testing.TB, n *Network) *Sentinel {
	t.Helper()
	s := new(Sentinel)
	for i := range 3 {
		args := []string{"--repl-diskless-sync-delay", "0"}
		if i > 0 {
			host, port := s.Nodes[0].announced()
			args = append(args, "--replicaof", host, port)
		}
		s.Nodes = append(s.Nodes, n.start(t, args...))
	}
	host, port := s.Nodes[0].announced()
	for range 3 {
		watch := newServer(t, nil)
		watch.sentinel = fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s 3000
sentinel failover-timeout %[1]s 3000
`, MasterName, host, port)
		n.enter(watch)
		watch.start(t)
		watch.Do(t, "SENTINEL", "DEBUG", "info-period", "200", "publish-period", "200", "ask-period", "200")
		s.Sentinels = append(s.Sentinels, watch)
	}
	err := eventually(s.ready)
	if err != nil {
		t.Fatalf("wait for the Sentinels: %v", err)
	}
	return s
}

// Join starts another replica of the master.
func (s *Sentinel) Join(t testing.TB) *Server {
	t.Helper()
	master := s.Master(t)
	host, port := master.announced()
	joined := master.network.start(t, "--repl-diskless-sync-delay", "0", "--replicaof", host, port)
	s.Nodes = append(s.Nodes, joined)
	return joined
}

// Leave ends a replica, and makes the Sentinels forget it. It returns when they know each other
// again: until then they replace no master, and can disagree about it.
func (s *Sentinel) Leave(t testing.TB, replica *Server) {
	t.Helper()
	replica.Kill()
	s.Nodes = slices.DeleteFunc(s.Nodes, func(n *Server) bool { return n == replica })
	for _, watch := range s.Sentinels {
		if watch.Running() {
			watch.Do(t, "SENTINEL", "RESET", MasterName)
		}
	}
	if err := eventually(s.ready); err != nil {
		t.Fatalf("wait for the Sentinels without %s: %v", replica.Addr(), err)
	}
}

func (s *Sentinel) ready() error {
	for _, watch := range s.Sentinels {
		m, err := watch.Try("SENTINEL", "MASTER", MasterName).AsStrMap()
		if err != nil {
			return err
		}
		if m["flags"] != "master" || m["num-slaves"] != strconv.Itoa(len(s.Nodes)-1) || m["num-other-sentinels"] != "2" {
			return fmt.Errorf("%s knows of its master: %v", watch.Addr(), m)
		}
		replicas, err := watch.Try("SENTINEL", "REPLICAS", MasterName).ToArray()
		if err != nil {
			return err
		}
		for _, r := range replicas {
			m, err := r.AsStrMap()
			if err != nil {
				return err
			}
			if m["flags"] != "slave" || m["master-link-status"] != "ok" {
				return fmt.Errorf("%s knows of a replica: %v", watch.Addr(), m)
			}
		}
	}
	return nil
}

// Addrs returns the Sentinels' addresses.
func (s *Sentinel) Addrs() []string {
	var all []string
	for _, watch := range s.Sentinels {
		all = append(all, net.JoinHostPort(watch.announced()))
	}
	return all
}

// URL returns redis-sentinel://HOST:PORT,…/weir.
func (s *Sentinel) URL() string {
	return "redis-sentinel://" + strings.Join(s.Addrs(), ",") + "/" + MasterName
}

// Master returns the master that all running Sentinels agree on, and that has that role itself.
func (s *Sentinel) Master(t testing.TB) *Server {
	t.Helper()
	return s.WaitForMaster(t, nil)
}

// KillMaster kills the master and returns it. It does not wait for a replacement.
func (s *Sentinel) KillMaster(t testing.TB) *Server {
	t.Helper()
	master := s.Master(t)
	master.Kill()
	return master
}

// Failover makes the Sentinels promote a replica, waits until they have, and returns the new
// master.
func (s *Sentinel) Failover(t testing.TB) *Server {
	t.Helper()
	master := s.Master(t)
	err := eventually(func() error {
		for _, watch := range s.Sentinels {
			if watch.Running() {
				// fails while another failover is in progress
				return watch.Try("SENTINEL", "FAILOVER", MasterName).Error()
			}
		}
		return final{fmt.Errorf("no Sentinel runs")}
	})
	if err != nil {
		t.Fatalf("SENTINEL FAILOVER: %v", err)
	}
	return s.WaitForMaster(t, master)
}

// WaitForMaster waits until all running Sentinels agree on a master other than not, and that has
// the role itself. It returns that master.
func (s *Sentinel) WaitForMaster(t testing.TB, not *Server) *Server {
	t.Helper()
	var master *Server
	err := eventually(func() (err error) {
		master, err = s.agreed()
		if err == nil && master == not {
			err = fmt.Errorf("it is still %s", not.Addr())
		}
		return err
	})
	if err != nil {
		t.Fatalf("wait for a master: %v", err)
	}
	return master
}

func (s *Sentinel) agreed() (*Server, error) {
	addr := ""
	for _, watch := range s.Sentinels {
		if !watch.Running() {
			continue
		}
		parts, err := watch.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).AsStrSlice()
		if err != nil {
			return nil, err
		}
		said := strings.Join(parts, ":")
		if addr != "" && addr != said {
			return nil, fmt.Errorf("one Sentinel says %s, another %s", addr, said)
		}
		addr = said
	}
	for _, node := range s.Nodes {
		if host, port := node.announced(); host+":"+port != addr {
			continue
		}
		info, err := node.Try("INFO", "replication").ToString()
		if err == nil && field(info, "role") != "master" {
			err = fmt.Errorf("%s is not yet one", addr)
		}
		return node, err
	}
	return nil, fmt.Errorf("the Sentinels say %q, which is none of ours", addr)
}
