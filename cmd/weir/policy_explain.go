package main

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/cli"
)

func newPolicyExplain() *cobra.Command {
	var file, ip string
	var machine cli.OnOff
	who := caller{}
	cmd := &cobra.Command{
		Use:   "explain METHOD PATH",
		Short: "Say which limiter a request meets, what it is counted by, and why",
		Long: `Say which limiter a request meets, which of its routes matched and why that one, and what each of its
windows would count the request by.

The path is judged as the server judges it: brought to one canonical form first, so that no spelling of an
endpoint gets a budget of its own. Say who is calling with --ip, --agent, --session and --token; whatever
you leave out is shown in angle brackets.`,
		Example: `  weir policy explain POST /api/v1/widget/leads --ip 203.0.113.7 --session abc
  weir policy explain POST /API//v1/widget/./Leads/
  weir policy explain GET /v1/wp/status --policy my-policy.yaml --json`,
		Args: cli.Arguments("METHOD", "PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := who.setIP(ip); err != nil {
				return cli.UsageError("for example --ip 203.0.113.7", "%s %q: %w", cli.GivenAs(cmd, "ip"), ip, err)
			}
			if !methodToken(args[0]) {
				return cli.UsageError("for example: weir policy explain POST /api/v1/widget/leads", "method %q: want a name such as POST", args[0])
			}
			if !strings.HasPrefix(args[1], "/") {
				return cli.UsageError("for example: weir policy explain POST /api/v1/widget/leads", "path %q: want one that begins with a slash", args[1])
			}
			policy, err := readPolicy(cmd.InOrStdin(), file)
			if err != nil {
				return printProblems(cmd.ErrOrStderr(), err)
			}
			e, err := explain(policy.Policy, args[0], args[1], who)
			if err != nil {
				return cli.Fail(err, "")
			}
			if machine {
				return cli.WriteJSON(cmd.OutOrStdout(), e)
			}
			return e.print(cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&ip, "ip", "", "the caller's IP `ADDRESS`")
	flags.StringVar(&who.agent, "agent", "", "the `ID` of the agent")
	flags.StringVar(&who.session, "session", "", "the `ID` of a verified visitor session")
	flags.StringVar(&who.token, "token", "", "the `ID` of a verified API token")
	flags.StringVar(&file, "policy", "", "`FILE` with the policy (default the contract)")
	cli.Must(cmd.MarkFlagFilename("policy"))
	cli.JSONFlag(cmd, &machine)
	return cmd
}

// methodToken says whether s has the form of a method (RFC 9110, section 9.1).
func methodToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// A caller is who a request is explained for; what is empty was not said.
type caller struct {
	ip, agent, session, token string
	addr                      netip.Addr // ip, exactly
}

// is reports whether a policy means this caller by w.
func (c *caller) is(w weir.Who) bool {
	if w.Token != "" {
		id, _ := c.value("token")
		return id == w.Token
	}
	return c.addr.IsValid() && w.Network.Contains(c.addr)
}

// setIP takes an address the way it is counted: IPv4 whole, IPv6 by its /64 (D12).
func (c *caller) setIP(s string) error {
	if s == "" {
		return nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("want an IPv4 or IPv6 address")
	}
	addr = addr.Unmap().WithZone("")
	c.addr = addr
	if addr.Is4() {
		c.ip = addr.String()
		return nil
	}
	network, err := addr.Prefix(64)
	c.ip = network.String()
	return err
}

// value returns what the caller is counted by under a key source. Sources of the policy that are not about a verified
// credential are always there, so they are shown in brackets where they were not said.
func (c *caller) value(source string) (string, bool) {
	switch source {
	case "ip":
		return cmp.Or(c.ip, "<address>"), true
	case "agent":
		return cmp.Or(c.agent, "<agent>"), true
	case "session":
		if strings.Count(c.session, ".") == 2 && strings.HasPrefix(c.session, "eyJ") { // a whole token: WEIR_SESSION is weir verify's, too
			return tokenID(c.session), true
		}
		return c.session, c.session != ""
	case "token":
		if publicID.MatchString(c.token) { // a whole token: WEIR_TOKEN is weir sync's, too
			return tokenID(c.token), true
		}
		return c.token, c.token != ""
	case "everyone":
		return "alike", true
	}
	return "", false
}

// An explanation is what policy explain prints.
type explanation struct {
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Canonical string            `json:"canonical,omitempty"` // empty: the path has no single safe reading
	Limiter   string            `json:"limiter,omitempty"`   // empty: none covers the request
	Route     string            `json:"route,omitempty"`
	Cost      int64             `json:"cost,omitempty"`
	Message   *messageJSON      `json:"message,omitempty"`
	Windows   []explainedWindow `json:"windows"`
	Why       []string          `json:"why"`
}

type messageJSON struct {
	Name string `json:"name"`
	Text string `json:"text"` // in English
}

// An explainedWindow is a window with what one caller is counted by.
type explainedWindow struct {
	windowJSON
	Counted []keyValue `json:"counted"`
}

type keyValue struct {
	Source string `json:"source"`
	Value  string `json:"value"`
	Note   string `json:"note,omitempty"`
}

func explainWindow(w weir.Window, who caller) explainedWindow {
	e := explainedWindow{windowJSON: newWindowJSON(w)}
	for _, part := range w.Key {
		e.Counted = append(e.Counted, who.count(part))
	}
	return e
}

// count resolves one part of a key: the first of its alternatives that the caller has, else the address.
func (c *caller) count(part weir.Part) keyValue {
	var missing []string
	for _, source := range part {
		if value, ok := c.value(source); ok {
			note := ""
			if len(missing) > 0 {
				note = "no verified " + strings.Join(missing, " or ")
			}
			return keyValue{source, value, note}
		}
		missing = append(missing, source)
	}
	address, _ := c.value("ip")
	return keyValue{"ip", address, "no verified " + strings.Join(missing, " or ")}
}

func (e *explanation) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "request\t%s %s\n", e.Method, e.Path)
	fmt.Fprintf(w, "read as\t%s\n", cmp.Or(e.Canonical, "nothing: it has no single safe reading, and is answered 400"))
	fmt.Fprintf(w, "limiter\t%s\n", cmp.Or(e.Limiter, "none: it passes unlimited, and without headers"))
	if e.Limiter != "" {
		fmt.Fprintf(w, "route\t%s\n", e.Route)
		fmt.Fprintf(w, "cost\t%d\n", e.Cost)
		for _, window := range e.Windows {
			fmt.Fprintf(w, "window\t%s\n", window.Window)
			for _, kv := range window.Counted {
				note := ""
				if kv.Note != "" {
					note = " (" + kv.Note + ")"
				}
				fmt.Fprintf(w, "\t  %s %s%s\n", kv.Source, kv.Value, note)
			}
		}
		fmt.Fprintf(w, "message\t%s: %s\n", e.Message.Name, e.Message.Text)
	}
	for _, why := range e.Why {
		fmt.Fprintf(w, "why\t%s\n", why)
	}
	return w.Flush()
}
