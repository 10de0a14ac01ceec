package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Slots is the number of slots of a cluster.
const Slots = 16384

// A Cluster is a Redis cluster. Only one goroutine at a time may change it.
type Cluster struct {
	// Nodes are the initial masters, then the replicas of the first, of the second and so on.
	Nodes []*Server

	ids map[*Server]string
}

// StartCluster starts a cluster of masters with equal shares of the slots, each with some replicas.
// A node that does not answer for a second counts as failed. StartCluster returns when all nodes
// agree that the cluster works and the replicas are in sync; args are for each node.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, nil, masters, replicas, args...)
}

// StartClusterIn is StartCluster with each node on a host of its own, and a Clock that runs.
func StartClusterIn(t testing.TB, n *Network, masters, replicas int) *Cluster {
	t.Helper()
	return startCluster(t, n, masters, replicas)
}

func startCluster(t testing.TB, n *Network, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{ids: make(map[*Server]string)}
	// As long as a node of a busy machine may not answer. Where nothing replaces it, it is never
	// taken for failed.
	timeout := "3000"
	if replicas == 0 {
		timeout = "600000"
	}
	for range masters * (1 + replicas) {
		s := n.start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--cluster-replica-validity-factor", "0",
			"--repl-diskless-sync-delay", "0",
		}, args...)...)
		id, err := s.Try("CLUSTER", "MYID").ToString()
		if err != nil {
			t.Fatal(err)
		}
		c.Nodes = append(c.Nodes, s)
		c.ids[s] = id
	}
	for i, s := range c.Nodes {
		s.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			first, next := i*Slots/masters, (i+1)*Slots/masters
			s.Do(t, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(next-1))
		}
		for _, other := range c.Nodes[:i] {
			host, port := other.announced()
			s.Do(t, "CLUSTER", "MEET", host, port)
		}
	}
	c.await(t, "all nodes know each other", func(_ *Server, peers []peer) bool {
		return len(peers) == len(c.Nodes) && !slices.ContainsFunc(peers, func(p peer) bool { return p.is("handshake") })
	})
	for i, s := range c.Nodes[masters:] {
		s.Do(t, "CLUSTER", "REPLICATE", c.ids[c.Nodes[i/replicas]])
	}
	c.await(t, "the replicas follow", func(s *Server, peers []peer) bool {
		following := 0
		for _, p := range peers {
			if p.is("slave") {
				following++
			}
		}
		return following == masters*replicas && c.works(s) && follows(s)
	})
	return c
}

// Addrs returns the nodes' addresses, in the order of Nodes.
func (c *Cluster) Addrs() []string {
	var all []string
	for _, s := range c.Nodes {
		all = append(all, net.JoinHostPort(s.announced()))
	}
	return all
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	m := c.running(t).Do(t, "CLUSTER", "KEYSLOT", key)
	slot, err := m.AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// MasterOf returns the node that serves a key.
func (c *Cluster) MasterOf(t testing.TB, key string) *Server {
	t.Helper()
	return c.MasterAt(t, c.Slot(t, key))
}

// Crash kills a master, waits until all nodes agree on its replacement, and returns that.
func (c *Cluster) Crash(t testing.TB, master *Server) *Server {
	t.Helper()
	wait := c.Replacement(t, master)
	master.Kill()
	return wait()
}

// Replacement returns a function that waits until all nodes agree on another master in a master's
// place, and returns that.
func (c *Cluster) Replacement(t testing.TB, master *Server) (wait func() *Server) {
	t.Helper()
	slot := c.slots(t, master)[0]
	return func() *Server {
		t.Helper()
		return c.awaitOwner(t, slot, func(id string) bool { return id != c.ids[master] })
	}
}

// Failover performs an orderly failover from a master to one of its replicas, waits until all nodes
// know, and returns the new master.
func (c *Cluster) Failover(t testing.TB, master *Server) *Server {
	t.Helper()
	slot, replica := c.slots(t, master)[0], c.ReplicaOf(t, master)
	replica.Do(t, "CLUSTER", "FAILOVER")
	return c.awaitOwner(t, slot, func(id string) bool { return id == c.ids[replica] })
}

// ReplicaOf returns a running replica of a master.
func (c *Cluster) ReplicaOf(t testing.TB, master *Server) *Server {
	t.Helper()
	peers, err := c.peers(master)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Nodes {
		following := func(p peer) bool { return p.id == c.ids[s] && p.master == c.ids[master] }
		if s.Running() && slices.ContainsFunc(peers, following) {
			return s
		}
	}
	t.Fatalf("%s has no replica", master.Addr())
	return nil
}

// Reshard moves the first n slots of one master to another, with their keys, while the cluster
// serves.
func (c *Cluster) Reshard(t testing.TB, from, to *Server, n int) {
	t.Helper()
	slots := c.slots(t, from)
	if n > len(slots) {
		t.Fatalf("%s has %d slots, not %d", from.Addr(), len(slots), n)
	}
	for _, slot := range slots[:n] {
		c.BeginMove(t, slot, to)()
	}
}

// BeginMove moves the keys of a slot to another master, but not yet the slot: clients are
// redirected there for one command (ASK). The function that it returns moves the slot, and returns
// when every node knows.
func (c *Cluster) BeginMove(t testing.TB, slot int, to *Server) (finish func()) {
	t.Helper()
	from, number := c.MasterAt(t, slot), strconv.Itoa(slot)
	to.Do(t, "CLUSTER", "SETSLOT", number, "IMPORTING", c.ids[from])
	from.Do(t, "CLUSTER", "SETSLOT", number, "MIGRATING", c.ids[to])
	for {
		m := from.Do(t, "CLUSTER", "GETKEYSINSLOT", number, "100")
		keys, err := m.AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		from.Do(t, append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.port), "", "0", "5000", "KEYS"}, keys...)...)
	}
	return func() {
		t.Helper()
		for _, s := range []*Server{to, from} {
			s.Do(t, "CLUSTER", "SETSLOT", number, "NODE", c.ids[to])
		}
		c.awaitOwner(t, slot, func(id string) bool { return id == c.ids[to] })
	}
}

// A peer is what one node reports of another, or of itself.
type peer struct {
	id, master string
	flags      []string
	slots      []int
}

func (p peer) is(flag string) bool { return slices.Contains(p.flags, flag) }

// peers returns the peers that a node knows.
func (c *Cluster) peers(s *Server) ([]peer, error) {
	text, err := s.Try("CLUSTER", "NODES").ToString()
	if err != nil {
		return nil, err
	}
	var all []peer
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // ID ADDRESS FLAGS MASTER PING PONG EPOCH LINK SLOT…
		if len(f) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: %q", line)
		}
		p := peer{id: f[0], flags: strings.Split(f[2], ","), master: f[3]}
		for _, span := range f[8:] {
			if strings.HasPrefix(span, "[") { // being moved
				continue
			}
			low, high, several := strings.Cut(span, "-")
			if !several {
				high = low
			}
			first, err1 := strconv.Atoi(low)
			last, err2 := strconv.Atoi(high)
			if err1 != nil || err2 != nil {
				return nil, fmt.Errorf("CLUSTER NODES: %q", line)
			}
			for slot := first; slot <= last; slot++ {
				p.slots = append(p.slots, slot)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// slots returns the slots of a master according to itself, at least one.
func (c *Cluster) slots(t testing.TB, master *Server) []int {
	t.Helper()
	peers, err := c.peers(master)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if p.id == c.ids[master] && len(p.slots) > 0 {
			return p.slots
		}
	}
	t.Fatalf("%s has no slots", master.Addr())
	return nil
}

// MasterAt returns the node that serves a slot.
func (c *Cluster) MasterAt(t testing.TB, slot int) *Server {
	t.Helper()
	return c.awaitOwner(t, slot, func(string) bool { return true })
}

// awaitOwner waits until all running nodes agree on the owner of a slot, wanted returns true for
// it, and the cluster works.
func (c *Cluster) awaitOwner(t testing.TB, slot int, wanted func(id string) bool) *Server {
	t.Helper()
	agreed := ""
	c.await(t, fmt.Sprintf("slot %d is where it should be", slot), func(s *Server, peers []peer) bool {
		for _, p := range peers {
			if slices.Contains(p.slots, slot) {
				if s == c.running(t) {
					agreed = p.id
				}
				return p.id == agreed && wanted(p.id) && c.works(s)
			}
		}
		return false
	})
	for s, id := range c.ids {
		if id == agreed {
			return s
		}
	}
	t.Fatalf("slot %d is at a node that is none of ours: %s", slot, agreed)
	return nil
}

// await waits until holds returns true for each running node.
func (c *Cluster) await(t testing.TB, what string, holds func(*Server, []peer) bool) {
	t.Helper()
	err := eventually(func() error {
		for _, s := range c.Nodes {
			if !s.Running() {
				continue
			}
			peers, err := c.peers(s)
			if err != nil {
				return err
			}
			if !holds(s, peers) {
				return fmt.Errorf("not at %s: %+v", s.Addr(), peers)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// running returns the first running node.
func (c *Cluster) running(t testing.TB) *Server {
	t.Helper()
	for _, s := range c.Nodes {
		if s.Running() {
			return s
		}
	}
	t.Fatal("no node of the cluster runs")
	return nil
}

func (c *Cluster) works(s *Server) bool {
	info, err := s.Try("CLUSTER", "INFO").ToString()
	return err == nil && field(info, "cluster_state") == "ok"
}

// follows reports whether a server is a master, or a replica in sync with one.
func follows(s *Server) bool {
	info, err := s.Try("INFO", "replication").ToString()
	return err == nil && (field(info, "role") == "master" || field(info, "master_link_status") == "up")
}
