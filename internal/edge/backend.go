package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/demo"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/sample"
)

// A backend receives the requests that are admitted.
type backend struct {
	sessions *identity.Sessions // nil: none are verified
	tokens   identity.Tokens    // nil: none are verified
	attach   func(*gateway.Options)
	lines    [3]string // for Server.Rows: the backend, its sessions, its API tokens; "": no row

	// Of the sample backend.

	workspace string         // one that exists; empty: not the sample backend
	issued    *sample.Tokens // nil: likewise
}

// rows returns the rows of the backend itself, and of its credentials.
func (b *backend) rows() (itself Row, credentials []Row) {
	credentials = []Row{{"sessions", b.lines[1]}, {"API tokens", b.lines[2]}}
	return Row{"backend", b.lines[0]}, slices.DeleteFunc(credentials, func(r Row) bool { return r.Text == "" })
}

// openBackend opens the sample backend, or what the upstream's callers are verified by. self
// rejects addresses of this server.
func openBackend(ctx context.Context, c *Config, self *ownListeners, h *hooks, own *parts) (*backend, error) {
	if len(c.Sites) > 0 {
		return openUpstream(ctx, c, self, h, own)
	}
	if c.asksAlone() {
		return openNone(ctx, c, self, h, own)
	}
	return openSample(ctx, c, own)
}

func openSample(ctx context.Context, c *Config, own *parts) (*backend, error) {
	s, err := sample.Open(ctx, sample.Options{Dir: c.Data, Now: c.Now, Log: c.Log, MaxData: c.MaxData, Welcome: true, Callers: c.identityOptions()})
	if errors.Is(err, sample.ErrMaxData) {
		return nil, cli.Fail(fmt.Errorf("open the data directory %q: %w", c.Data, err), "raise --max-data, such as --max-data 1GiB")
	}
	if err != nil {
		return nil, noData(c.Data, err)
	}
	own.own(s.Close)
	if c.Store.Shared() {
		c.Log.Warn("the sample backend is local to this machine: nodes that share a store do not share its sessions, tokens and rows; for several nodes use --upstream")
	}
	b := &backend{
		sessions:  s.Sessions(),
		tokens:    s.Tokens(),
		issued:    s.Tokens(),
		workspace: "demo",
		attach: func(o *gateway.Options) {
			o.Backend, o.Ready, o.OnDrain = s.Handler(), s.Ready, s.Drain
		},
		lines: [3]string{
			fmt.Sprintf("the sample backend, up to %v in %s", size(c.MaxData), absolute(c.Data)),
			"issued and verified here",
			"those of 'weir token create', in " + absolute(c.Data),
		},
	}
	if all, err := b.issued.List(ctx); err == nil {
		if i := slices.IndexFunc(all, func(t sample.TokenInfo) bool { return t.Workspace != demo.Workspace }); i >= 0 {
			b.workspace = all[i].Workspace
		}
	}
	return b, nil
}

func openUpstream(ctx context.Context, c *Config, self *ownListeners, h *hooks, own *parts) (*backend, error) {
	b := &backend{attach: func(o *gateway.Options) {
		o.Sites, o.UpstreamTLS, o.Avoid = c.Sites, c.UpstreamTLS, self.checkSelfProxy
		o.Credentials = map[string]string{
			identity.Session: "Begin a session with the service behind this address; send its token as Authorization: Bearer <token>.",
			identity.Token:   "The operator of this service issues them; send yours " + c.tokenExamples() + ".",
		}
		o.HideTokens = c.hiddenTokens()
	}}
	b.lines[0] = describeSites(c.Sites)
	var err error
	if b.sessions, b.lines[1], err = openSessions(ctx, c, h, own); err != nil {
		return nil, err
	}
	b.tokens, b.lines[2], err = openTokens(ctx, c, h, own)
	return b, err
}

// maxDescribed is how many sites start-up prints.
const maxDescribed = 8

// describeSites returns the upstreams, for the rows of start-up.
func describeSites(sites []gateway.Site) string {
	var all []string
	for i, s := range sites {
		if i == maxDescribed && len(sites) > maxDescribed+1 {
			all = append(all, fmt.Sprintf("and %d more", len(sites)-i))
			break
		}
		addresses := make([]string, len(s.Upstreams))
		for j, u := range s.Upstreams {
			addresses[j] = u.String()
		}
		text := strings.Join(addresses, ", ")
		if s.Host != "" {
			text = s.Host + " at " + text
		} else if len(sites) > 1 {
			text = "all other hosts at " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
