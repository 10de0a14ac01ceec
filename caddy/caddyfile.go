package weircaddy

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Caddy finds modules by what their packages register before main.
func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("weir", parseDirective)
	// The policy's routes are the client's paths, which later directives rewrite.
	httpcaddyfile.RegisterDirectiveOrder("weir", httpcaddyfile.Before, "redir")
}

func parseDirective(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler := new(Handler)
	return handler, handler.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler. The file of the policy is in the block,
// because Caddy reads an argument that begins with a slash as a matcher:
//
//	weir [MATCHER] {
//		policy     FILE
//		store      memory | redis://HOST:PORT | …
//		counts     FILE
//		token_file FILE
//		token_from PLACE …
//		key        NAME PLACEHOLDER [verified]
//		ietf
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive
	if d.NextArg() {
		return d.Errf("unexpected %q: the policy's file is in the block: weir { policy FILE }", d.Val())
	}
	texts := map[string]*string{"policy": &h.Policy, "store": &h.Store, "counts": &h.Counts, "token_file": &h.TokenFile}
	for d.NextBlock(0) {
		name := d.Val()
		if text, ok := texts[name]; ok {
			if *text != "" {
				return d.Errf("%s is given twice: %q and here", name, *text)
			}
			if !d.AllArgs(text) {
				return d.ArgErr()
			}
			continue
		}
		if err := h.unmarshalList(d, name); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handler) unmarshalList(d *caddyfile.Dispenser, name string) error {
	args := d.RemainingArgs()
	switch name {
	case "token_from":
		if len(args) == 0 {
			return d.ArgErr()
		}
		h.TokenFrom = append(h.TokenFrom, args...)
	case "key":
		if len(args) < 2 || len(args) > 3 || len(args) == 3 && args[2] != "verified" {
			return d.Err("expected: key NAME PLACEHOLDER [verified]")
		}
		if _, taken := h.Keys[args[0]]; taken {
			return d.Errf("key %s is given twice", args[0])
		}
		if h.Keys == nil {
			h.Keys = map[string]KeySource{}
		}
		h.Keys[args[0]] = KeySource{Placeholder: args[1], Verified: len(args) == 3}
	case "ietf":
		if len(args) > 0 {
			return d.ArgErr()
		}
		h.IETF = true
	default:
		return d.Errf("unknown setting %q: policy, store, counts, token_file, token_from, key and ietf are allowed", name)
	}
	return nil
}
