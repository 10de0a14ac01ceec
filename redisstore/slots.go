package redisstore

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// slotIn returns the slot of a window, or -1 if the link is not to a cluster.
func slotIn(l *link, name string) int {
	if !l.cluster {
		return -1
	}
	tag := tagOf(name)
	return slotOf(tag[strings.IndexByte(tag, '{')+1:])
}

// slotOf returns the slot of a hash tag: its CRC-16/XMODEM (Redis cluster specification, "Key
// distribution model").
func slotOf(tag string) int {
	var crc uint16
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ 0x1021*carry
		}
	}
	return int(crc % slotCount)
}

// readSlots reads who owns the slots of a cluster, from the first machine that answers. If none
// does, every epoch ends.
func (s *Store) readSlots(ctx context.Context, client rueidis.Client) {
	if client.Mode() != rueidis.ClientModeCluster {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan *slotOwners, 1)
	var all sync.WaitGroup
	for address, node := range nodes(client) {
		all.Go(func() {
			owners, err := askSlots(ctx, node, address)
			if err != nil {
				return
			}
			select {
			case answers <- owners:
				cancel() // the others are not needed
			default:
			}
		})
	}
	all.Wait()
	cancel()
	select {
	case owners := <-answers:
		if s.epoch.learn(owners) {
			s.promoted.lookSoon()
		}
	default:
		s.epoch.end()
	}
}

// askSlots asks one machine who owns the slots of its cluster.
func askSlots(ctx context.Context, node rueidis.Client, address string) (*slotOwners, error) {
	reply, err := node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	owners := &slotOwners{known: make(map[string]bool)}
	return owners, parseSlots(reply, address, &owners.owner, owners.known)
}

// parseSlots decodes the reply of CLUSTER SLOTS of the machine with an address: a range of slots
// each, its master and the replicas of that.
func parseSlots(reply []rueidis.RedisMessage, asked string, owner *[slotCount]string, known map[string]bool) error {
	for i := range reply {
		parts, err := reply[i].ToArray()
		if err != nil {
			return err
		}
		if len(parts) < 3 {
			return errReply
		}
		first, err := parts[0].AsInt64()
		if err != nil {
			return err
		}
		last, err := parts[1].AsInt64()
		if err != nil {
			return err
		}
		if first < 0 || last >= slotCount {
			return errReply
		}
		for j := range parts[2:] {
			address, err := parseMachine(&parts[2+j], asked)
			if err != nil {
				return err
			}
			known[address] = true
			for slot := first; j == 0 && slot <= last; slot++ {
				owner[slot] = address
			}
		}
	}
	return nil
}

// parseMachine decodes the address of one machine. It has no host if it is that of the machine that
// was asked.
func parseMachine(m *rueidis.RedisMessage, asked string) (string, error) {
	parts, err := m.ToArray()
	if err != nil {
		return "", err
	}
	if len(parts) < 2 {
		return "", errReply
	}
	port, err := parts[1].AsInt64()
	if err != nil {
		return "", err
	}
	host, err := parts[0].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return "", err
	}
	if host == "" {
		if host, _, err = net.SplitHostPort(asked); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
}
