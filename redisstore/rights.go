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
)

// A RightsError says which rights the server's user lacks. It is an ErrDenied.
type RightsError struct {
	User    string   // empty: the default one
	Missing []string // commands, in lower case
	Keys    bool     // the user may not use the keys under the prefix
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

// Is makes it an ErrDenied.
func (e *RightsError) Is(target error) bool { return target == ErrDenied }

// Rule returns the rules of ACL SETUSER that give a user every right that is needed under a prefix;
// empty means "weir".
func Rule(prefix string) string {
	if prefix == "" {
		prefix = "weir"
	}
	var b strings.Builder
	b.WriteString("~" + prefix + ":*")
	for _, r := range rights {
		b.WriteString(" +" + r.command)
	}
	b.WriteString(" +ping +hello +cluster|slots +cluster|shards")
	return b.String()
}

// rights are the commands that are needed, by a node or by its scripts, each with arguments that do
// no harm behind a key that is nobody's. The last four of Rule can be done without: a client of one
// server does.
var rights = []struct {
	command string
	keyless bool
	before  []string // the key
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
	{"hget", false, nil, []string{"nobody"}},
	{"hset", false, nil, []string{"nobody", "0"}},
	{"hdel", false, nil, []string{"nobody"}},
	{"hlen", false, nil, nil},
	{"hgetall", false, nil, nil},
	{"expireat", false, nil, []string{"1"}},
	{"time", true, nil, nil},
	{"info", true, nil, []string{"server"}},
}

// lacking finds out which rights are missing, by trying each. It returns err if none is, as where
// the server says otherwise.
func (s *Store) lacking(ctx context.Context, client rueidis.Client, err error) error {
	e := &RightsError{User: s.options.Username, Prefix: s.prefix}
	for _, r := range rights {
		c := client.B().Arbitrary(append([]string{r.command}, r.before...)...)
		if !r.keyless {
			c = c.Keys(s.prefix + ":{trial}4")
		}
		told, ok := rueidis.IsRedisErr(client.Do(ctx, c.Args(r.after...).Build()).Error())
		if !ok || !strings.HasPrefix(told.Error(), "NOPERM") {
			continue
		}
		if deniesKeys(told.Error()) {
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

// Redis says since 7.2, and Valkey, "NOPERM No permissions to access a key"; older ones say "NOPERM
// this user has no permissions to access one of the keys used as arguments". What a script lacks is
// "ERR ACL failure in script: User NAME has no permissions to run the 'COMMAND' command" now, and was
// "ERR The user executing the script can't run this command or subcommand", without the command.
var (
	keysDenied    = []string{"to access a key", "to access one of the keys", "can't access at least one of the keys"}
	scriptsDenied = []string{"ACL failure in script", "can't run this command", "can't access at least one of the keys"}
)

// deniesKeys reports whether a refusal is about keys, and not about a command.
func deniesKeys(refusal string) bool {
	return slices.ContainsFunc(keysDenied, func(s string) bool { return strings.Contains(refusal, s) })
}

// tryAll runs every script in both ways in which it is run: known to the server, and sent whole. So
// whatever a request needs later is allowed, or a start fails.
func (s *Store) tryAll(ctx context.Context, client rueidis.Client) error {
	l := newLink(client, nil, false)
	names := []string{s.prefix + ":{trial}1", s.prefix + ":{trial}2"}
	both := []weir.Charge{{Limit: 1, Per: 1, Cost: 1}, {Limit: 1, Per: 1, Cost: 1}}
	grants := []string{s.prefix + ":{trial}3"}
	most, until := strconv.Itoa(weir.MaxGrants), strconv.FormatInt(mostSecond, 10)
	soon := strconv.FormatInt(s.Now().Unix()+2, 10)
	for _, t := range []struct {
		script     *script
		keys, args []string
	}{
		{&l.take, names, s.spellings.takeArguments(nil, both, s.neverLate())}, // the windows begin, and are full the second time
		{&l.give, []string{names[0], names[0] + givenName}, []string{"1", "2", soon}},
		{&l.reset, names, nil},
		{&l.grant, grants, []string{"", "", most, "nobody", "1", until}},
		{&l.granted, grants, []string{most}},
		{&l.grant, grants, []string{"", "", most, "nobody", "0", "0"}},
	} {
		for _, whole := range []bool{true, false} {
			if err := client.Do(ctx, t.script.command(l, whole, t.keys, t.args)).Error(); err != nil {
				return s.denied(ctx, client, err)
			}
		}
	}
	err := client.Do(ctx, client.B().Hget().Key(grants[0]).Field(versionField).Build()).Error()
	if rueidis.IsRedisNil(err) {
		err = nil
	}
	return s.denied(ctx, client, err)
}

// tryTake asks for a take that is nobody's, exactly as takes are asked. One answer is enough: on a
// cluster a machine that is dead says nothing of the others.
func (s *Store) tryTake(ctx context.Context, l *link) (err error) {
	names := []string{s.trialName(0)}
	if l.cluster {
		for i := 1; i < pings; i++ {
			names = append(names, s.trialName(i))
		}
	}
	for _, err = range s.trials(ctx, l, names) {
		if err == nil {
			return nil
		}
	}
	return err
}

// trialName is behind the tag of a caller for a window that is nobody's.
const trialName = ":trial"

func (s *Store) trialName(n int) string { return fmt.Sprintf("%s:{trial%d}", s.prefix, n) }

// trials charges windows that are nobody's, known by their names, all at once. It yields each name
// with its error as it is answered, so that no machine waits for another one that is silent; when ctx
// ends, those without an answer have its error.
func (s *Store) trials(ctx context.Context, l *link, names []string) iter.Seq2[string, error] {
	type answer struct {
		name string
		err  error
	}
	answers := make(chan answer, len(names))
	args := s.spellings.takeArguments(nil, []weir.Charge{{Limit: weir.MaxLimit, Per: 1, Cost: 1}}, s.neverLate())
	for _, name := range names {
		if err := s.aside.enter(ctx); err != nil {
			answers <- answer{name, err}
			continue
		}
		go func() {
			defer s.aside.leave()
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

// denied is explained, and names the right that is missing.
func (s *Store) denied(ctx context.Context, client rueidis.Client, err error) error {
	if err = explained(err); errors.Is(err, ErrDenied) {
		return s.lacking(ctx, client, err)
	}
	return err
}
