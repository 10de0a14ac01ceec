package weir

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// idFor returns an id for a path, mostly one that exists.
func (g *generator) idFor(o operation, v *visitor) string {
	known := v.conversations
	if strings.Contains(o.path, "/messages/") {
		known = v.messages
	}
	if len(known) > 0 && !g.one(10) {
		return known[len(known)-1-g.IntN(min(len(known), 8))]
	}
	return g.foreignID()
}

// foreignID returns an id of another session, or one that does not exist.
func (g *generator) foreignID() string {
	other := g.callers[g.IntN(len(g.callers))]
	all := append(slices.Clone(other.conversations), "cnv_AAAAAAAAAAAAAAAAAAAAAAAAAA", "msg_AAAAAAAAAAAAAAAAAAAAAAAAAA", "0", "' OR 1=1 --", "%", "…", strings.Repeat("x", 300))
	return all[g.IntN(len(all))]
}

func (g *generator) parameter(p *openapi3.Parameter, v *visitor) string {
	switch {
	case p.Name == "wait":
		return pick(g, "0", "0", "", "1", "25")
	case p.Name == "Last-Event-ID":
		return pick(g, g.conversation(v)+"/1", g.conversation(v)+"/0", g.conversation(v)+"/999999", "1", "", "a/b", g.foreignID()+"/1")
	case p.Name == "conversation_id":
		return g.conversation(v)
	case p.Name == "agent_id" || p.Name == "X-Agent-Id":
		return pick(g, "demo", "demo", "demo", "nobody")
	case p.Name == "Accept-Language":
		return pick(g, "de", "fr;q=0.5, tlh", "*", "zh-Hant, en;q=0.1", ";;q=x")
	case p.Schema.Value.Type.Is(openapi3.TypeInteger):
		if p.Name == "after" && !g.one(3) {
			return pick(g, "0", "1")
		}
		return strconv.FormatInt(g.integer(p.Schema.Value), 10)
	}
	return pick(g, "", g.conversation(v), g.rows[g.IntN(len(g.rows))], g.codes[g.IntN(len(g.codes))])
}

func (g *generator) conversation(v *visitor) string {
	if len(v.conversations) == 0 || g.one(12) {
		return pick(g, "", g.foreignID())
	}
	return v.conversations[g.IntN(len(v.conversations))]
}

func (g *generator) integer(s *openapi3.Schema) int64 {
	least, most := int64(0), int64(1_000_000)
	if s.Min != nil {
		least = int64(*s.Min)
	}
	if s.Max != nil {
		most = int64(*s.Max)
	}
	return pick(g, least, most, least+g.Int64N(most-least+1), least+g.Int64N(min(most-least, 2000)+1))
}

// value makes a value of a schema. name is the field's; it is empty for the whole
// body.
func (g *generator) value(name string, s *openapi3.Schema, v *visitor) any {
	if s.Type.Includes(openapi3.TypeNull) && g.one(10) {
		return nil
	}
	switch {
	case s.Type.Includes(openapi3.TypeBoolean):
		return g.one(2)
	case s.Type.Includes(openapi3.TypeInteger):
		return g.integer(s)
	case s.Type.Includes(openapi3.TypeString):
		return g.string(name, s, v)
	case s.Type.Includes(openapi3.TypeArray):
		items := make([]any, pick(g, 0, 1, 1, 2, 3, 5))
		if g.one(40) {
			items = make([]any, int(*s.MaxItems))
		}
		for i := range items {
			items[i] = g.value(name, s.Items.Value, v)
		}
		return items
	}
	fields := map[string]any{}
	for _, field := range sorted(s.Properties) {
		if slices.Contains(s.Required, field) || g.one(3) {
			fields[field] = g.value(field, s.Properties[field].Value, v)
		}
	}
	if _, coupon := s.Properties["max_uses"]; coupon { // which need one of two fields
		delete(fields, pick(g, "percent", "amount"))
		if fields["percent"] == nil && fields["amount"] == nil {
			fields["percent"] = 1 + g.IntN(100)
		}
		if fields["percent"] != nil && fields["minimum"] == nil && !g.one(10) {
			delete(fields, "currency")
		}
	}
	if len(s.Properties) == 0 && s.AdditionalProperties.Schema == nil && name == "data" {
		fields["url"], fields[g.letters(3)] = "/"+g.letters(5), []any{1.5, nil, map[string]any{"deep": g.letters(4)}}
	}
	return fields
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// string makes a likely value for a field of that name, or any text of the schema's
// length.
func (g *generator) string(name string, s *openapi3.Schema, v *visitor) string {
	switch name {
	case "conversation_id":
		return g.conversation(v)
	case "agent_id":
		return pick(g, "demo", "demo", "demo", "", "nobody", g.letters(256))
	case "code":
		if g.one(3) {
			g.codes = append(g.codes, strings.ToUpper(g.letters(6)))
		}
		return pick(g, strings.ToLower, strings.ToUpper)(g.codes[g.IntN(min(len(g.codes), pick(g, seeded, len(g.codes))))])
	case "currency":
		return pick(g, "EUR", "EUR", "EUR", "USD", "")
	case "email":
		return pick(g, "ann@example.org", "o'hara+x@sub.example.co", `"a b"@example.org`, "ünï@exämple.org", g.letters(64)+"@example.org", "no address", "Ann <ann@example.org>", "a@b@c")
	case "url":
		return pick(g, "https://example.org/"+g.letters(5), "HTTP://EXAMPLE.org", "https://exämple.org/ü?q=1#f", "https://[2001:db8::1]:8/", "https://example.org/"+g.letters(2028), "https:///x", "https://u:p@example.org", "https://example.org/%zz", "http://:80")
	case "type":
		return pick(g, "page.view", "a", "cart:add-1", "conversation.closed", g.letters(64), "9")
	case "starts_at", "ends_at":
		at := g.now.Add(time.Duration(g.IntN(100)-50) * time.Hour)
		return pick(g, at.Format(time.RFC3339), at.In(time.FixedZone("", 19800)).Format(time.RFC3339Nano), at.Format("2006-01-02T15:04:05.000Z"), "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "2026-02-30T00:00:00Z", "2026-03-01T12:00:00")
	case "id":
		if g.one(2) {
			g.rows = append(g.rows, g.letters(8))
		}
		return pick(g, g.rows[g.IntN(len(g.rows))], g.rows[g.IntN(len(g.rows))], "ß/ü 👋", g.letters(200))
	}
	if s.Pattern != "" && !strings.Contains(s.Pattern, "{Cc}") {
		return g.letters(5)
	}
	most := 100
	if s.MaxLength != nil {
		most = int(*s.MaxLength)
	}
	switch g.IntN(12) {
	case 0:
		return g.letters(most)
	case 1:
		return g.letters(int(s.MinLength))
	case 2:
		return strings.Repeat("é", most/2)
	case 3:
		return strings.Repeat("👩‍👩‍👧", most/50+1)
	}
	return pick(g, "How long does delivery take?", "Où est ma commande ?", "مرحبا", "e\u0301\u200d\ufeff", "NEAR(\"a\" OR b*", "\u00a0", "<script>alert(1)</script>", "a'b\"c\\d", "ı ſ K ß ŉ", "\U0010ffff") + g.letters(1+g.IntN(5))
}

func (g *generator) letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + g.IntN(26))
	}
	return string(b)
}
