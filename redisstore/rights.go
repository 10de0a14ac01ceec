package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/lease"
)

// A RightsError names the rights that the server's user lacks. It is an ErrDenied.
type RightsError struct {
	User    string   // empty: the default user
	Missing []string // commands, in lower case
	Keys    bool     // whether the user may not use the keys under Prefix
	Prefix  string
}

// Error names what is missing.
func (e *RightsError) Error() string {
	user := e.User
	if user == "" {
		user = "default"
	}
	var missing []string
	if len(e.Missing) > 0 {
		missing = append(missing, "run '"+strings.Join(e.Missing, "', '")+"'")
	}
	if e.Keys {
		missing = append(missing, "use the keys "+e.Prefix+":*")
	}
	return fmt.Sprintf("%v: user %s may not %s", ErrDenied, user, strings.Join(missing, " nor "))
}

// Is reports whether target is ErrDenied.
func (e *RightsError) Is(target error) bool { return target == ErrDenied }

// ACLRules returns the rules of ACL SETUSER that give a user every right that is needed under a
// prefix; an empty prefix means "weir".
func ACLRules(prefix string) string {
	if prefix == "" {
		prefix = "weir"
	}
	var b strings.Builder
	b.WriteString("~" + prefix + ":*")
	for _, r := range rights {
		b.WriteString(" +" + r.command)
	}
	b.WriteString(" +ping +hello +cluster|slots +cluster|shards +wait")
	return b.String()
}

// rights are the commands that nodes and scripts need, each with arguments that are harmless on a
// key of no caller. The last five of ACLRules are optional: a client of one server works without
// them, if Options.Replicas is 0.
var rights = []struct {
	command string
	keyless bool
	before  []string // the key follows
	after   []string
}{
	{"eval", false, []string{"return 1", "1"}, nil},
	{"evalsha", false, []string{strings.Repeat("0", 40), "1"}, nil},
	{"get", false, nil, nil},
	{"getex", false, nil, []string{"EX", "1"}},
	{"set", false, nil, []string{"0", "EX", "1"}},
	{"incrby", false, nil, []string{"1"}},
	{"decrby", false, nil, []string{"1"}},
	{"pttl", false, nil, nil},
	{"del", false, nil, nil},
	{"mget", false, nil, nil},
	{"pexpire", false, nil, []string{"1"}},
	{"zadd", false, nil, []string{"0", "nobody"}},
	{"zcard", false, nil, nil},
	{"zrange", false, nil, []string{"0", "0"}},
	{"zrem", false, nil, []string{"nobody"}},
	{"zremrangebyscore", false, nil, []string{"0", "0"}},
	{"hget", false, nil, []string{"nobody"}},
	{"hset", false, nil, []string{"nobody", "0"}},
	{"hdel", false, nil, []string{"nobody"}},
	{"hlen", false, nil, nil},
	{"hgetall", false, nil, nil},
	{"expireat", false, nil, []string{"1"}},
	{"time", true, nil, nil},
	{"info", true, nil, []string{"server"}},
}

// missingRights tries each right, and returns a RightsError with those that are missing. It returns
// err if none is.
func (s *Store) missingRights(ctx context.Context, client rueidis.Client, err error) error {
	e := &RightsError{User: s.options.Username, Prefix: s.prefix}
	for _, r := range rights {
		c := client.B().Arbitrary(append([]string{r.command}, r.before...)...)
		if !r.keyless {
			c = c.Keys(s.prefix + ":{trial}4")
		}
		redisErr, ok := rueidis.IsRedisErr(client.Do(ctx, c.Args(r.after...).Build()).Error())
		if !ok || !strings.HasPrefix(redisErr.Error(), "NOPERM") {
			continue
		}
		if deniesKeys(redisErr.Error()) {
			e.Keys = true
		} else {
			e.Missing = append(e.Missing, r.command)
		}
	}
	if len(e.Missing) == 0 && !e.Keys {
		return err
	}
	return e
}

// Redis since 7.2, and Valkey, reply "NOPERM No permissions to access a key"; older ones reply
// "NOPERM this user has no permissions to access one of the keys used as arguments". For a script
// it is now "ERR ACL failure in script: User NAME has no permissions to run the 'COMMAND' command",
// and was "ERR The user executing the script can't run this command or subcommand", without the
// command.
var (
	keysDenied    = []string{"to access a key", "to access one of the keys", "can't access at least one of the keys"}
	scriptsDenied = []string{"ACL failure in script", "can't run this command", "can't access at least one of the keys"}
)

// deniesKeys reports whether a refusal is about keys rather than about a command.
func deniesKeys(refusal string) bool {
	return slices.ContainsFunc(keysDenied, func(s string) bool { return strings.Contains(refusal, s) })
}

// tryScripts runs every script in both ways: by its SHA-1, and by its text. So a start fails if a
// later request would lack a right.
func (s *Store) tryScripts(ctx context.Context, client rueidis.Client) error {
	l := newLink(client, nil, false)
	names := []string{s.prefix + ":{trial}1", s.prefix + ":{trial}2"}
	both := []weir.Charge{{Limit: 1, Per: 1, Cost: 1}, {Limit: 1, Per: 1, Cost: 1}}
	grants := []string{s.prefix + ":{trial}3"}
	maxGrants, until := strconv.Itoa(weir.MaxGrants), strconv.FormatInt(maxUntil, 10)
	soon := strconv.FormatInt(s.Now().Unix()+2, 10)
	marks := []string{names[0] + resetName, names[1] + resetName}
	slots := s.prefix + ":{trial}5"
	unleased := s.numbers.leaseArguments(nil, make([]lease.Wish, len(both)), make([]int64, len(both)), false)
	// a slot for 1 ms, and at the second time none that is free
	hold := s.numbers.takeArguments([]string{"1", "1", "nobody", "1", "1", "1", "nobody:2"}, both[:1], 0, s.neverLate())
	for _, t := range []struct {
		script     *script
		keys, args []string
	}{
		// the first creates the windows, the second finds them full
		{&l.take, names, s.numbers.takeArguments(nil, both, 0, s.neverLate())},
		{&l.lease, append(names[:2:2], marks...), s.numbers.takeArguments(unleased, both, 0, s.neverLate())},
		{&l.give, []string{names[0], names[0] + givenName}, []string{"1", "2", soon}},
		{&l.settle, []string{marks[0], marks[1], names[0]}, []string{"", "", "1", "0", "1"}},
		{&l.settleMarked, []string{names[0], marks[0]}, []string{"0", "1", "1"}},
		{&l.reset, append(names, marks...), []string{"0"}},
		{&l.claim, []string{s.prefix + ":{trial}6"}, []string{"1", "1", "nobody"}},
		{&l.renew, []string{slots}, []string{"1000", "nobody", "1"}},
		{&l.hold, []string{names[0], slots}, hold},
		{&l.grant, grants, []string{"", "", maxGrants, "nobody", "1", until}},
		{&l.granted, grants, []string{maxGrants}},
		{&l.grant, grants, []string{"", "", maxGrants, "nobody", "0", "0"}},
	} {
		for _, whole := range []bool{true, false} {
			reply := client.Do(ctx, t.script.command(l, whole, t.keys, t.args))
			if err := reply.Error(); err != nil {
				return s.diagnosed(ctx, client, err)
			}
			if parts, err := reply.ToArray(); err == nil && len(parts) == 0 && t.script == &l.lease {
				return errReply // it has taken nothing
			}
		}
	}
	for _, c := range []rueidis.Completed{
		client.B().Zrem().Key(slots).Member("nobody:1").Build(),
		client.B().Del().Key(marks...).Build(),
		client.B().Zcard().Key(slots).Build(),
		client.B().Hget().Key(grants[0]).Field(versionField).Build(),
	} {
		if err := client.Do(ctx, c).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return s.diagnosed(ctx, client, err)
		}
	}
	return nil
}

// probe takes from windows of no caller, in the same way as takes of callers. One answer is enough:
// on a cluster a dead machine says nothing about the others.
func (s *Store) probe(ctx context.Context, l *link) (err error) {
	names := []string{s.probeName(0)}
	if l.cluster {
		for i := 1; i < pings; i++ {
			names = append(names, s.probeName(i))
		}
	}
	for _, err = range s.probeAll(ctx, l, names) {
		if err == nil {
			return nil
		}
	}
	return err
}

// probeSuffix follows the tag of a caller in the name of a probe.
const probeSuffix = ":trial"

func (s *Store) probeName(n int) string { return fmt.Sprintf("%s:{trial%d}", s.prefix, n) }

// probeAll takes from windows of no caller, by their names, all at once. It yields each name with
// its error as soon as it is answered, so that a silent machine delays no other. When ctx ends, it
// yields the rest with ctx's error.
func (s *Store) probeAll(ctx context.Context, l *link, names []string) iter.Seq2[string, error] {
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(names))
	args := s.numbers.takeArguments(nil, []weir.Charge{{Limit: weir.MaxLimit, Per: 1, Cost: 1}}, 0, s.neverLate())
	for _, name := range names {
		if err := s.detached.acquire(ctx); err != nil {
			answers <- answer{name, err}
			continue
		}
		go func() {
			defer s.detached.release()
			_, err := s.send(ctx, l, &l.take, []string{name}, args)
			answers <- answer{name, err}
		}()
	}
	return func(yield func(string, error) bool) {
		waiting := make(map[string]bool, len(names))
		for _, name := range names {
			waiting[name] = true
		}
		for len(waiting) > 0 {
			select {
			case a := <-answers:
				delete(waiting, a.name)
				if !yield(a.name, a.err) {
					return
				}
			case <-ctx.Done():
				for name := range waiting {
					if !yield(name, ctx.Err()) {
						return
					}
				}
				return
			}
		}
	}
}

// diagnosed is classified, and names the missing right.
func (s *Store) diagnosed(ctx context.Context, client rueidis.Client, err error) error {
	if err = classified(err); errors.Is(err, ErrDenied) {
		return s.missingRights(ctx, client, err)
	}
	return err
}
