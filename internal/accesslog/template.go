package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A variable is the meaning of a value in a line. Other variables are kept only for Options.Fields.
type variable uint8

const (
	other variable = iota
	varPeer
	varForwarded // a list; the last address is the one that the server itself has seen
	varStamp     // in any format that a clock parses
	varExact     // a timestamp with a higher precision
	varTook      // seconds, which end at the time of the line
	varLasted    // milliseconds, which begin at it
	varRequest
	varMethod
	varTarget
	varPath
	varQuery
	varStatus
	varAgent
	varHost
	varServer // the name of the server that answered, which may be another than the host
	varUser   // may contain spaces and brackets, but no quotes
	variables
)

// nginxVariables are nginx's variables that describe a request.
var nginxVariables = map[string]variable{
	"remote_addr":     varPeer,
	"remote_user":     varUser,
	"time_local":      varStamp,
	"time_iso8601":    varStamp,
	"msec":            varExact,
	"request_time":    varTook,
	"request":         varRequest,
	"request_method":  varMethod,
	"request_uri":     varTarget,
	"uri":             varPath,
	"document_uri":    varPath,
	"args":            varQuery,
	"query_string":    varQuery,
	"status":          varStatus,
	"http_user_agent": varAgent,
	"host":            varHost,
	"http_host":       varHost,
	"server_name":     varServer,
}

// envoyVariables are those of the two templates below, which use Envoy's own words in lower case.
var envoyVariables = map[string]variable{
	"start_time":                varStamp,
	"request":                   varRequest,
	"response_code":             varStatus,
	"duration":                  varLasted,
	"x_forwarded_for":           varForwarded,
	"user_agent":                varAgent,
	"authority":                 varHost,
	"downstream_remote_address": varPeer,
}

// The default text formats of Envoy and Istio.
const (
	envoyText = `[$start_time] "$request" $response_code $response_flags $bytes_received $bytes_sent $duration ` +
		`$upstream_service_time "$x_forwarded_for" "$user_agent" "$request_id" "$authority" "$upstream_host"`
	istioText = `[$start_time] "$request" $response_code $response_flags $response_code_details $connection_termination_details ` +
		`"$upstream_transport_failure_reason" $bytes_received $bytes_sent $duration $upstream_service_time "$x_forwarded_for" ` +
		`"$user_agent" "$request_id" "$authority" "$upstream_host" $upstream_cluster $upstream_local_address ` +
		`$downstream_local_address $downstream_remote_address $requested_server_name $route_name`
)

// A piece is a variable of a template and the text after it.
type piece struct {
	name string
	is   variable
	then string // empty at the end of the line, or if the next variable's first byte marks the end
	// if then is empty and this is not the last piece: the first byte of the next value
	until byte
}

// A template parses lines written with a log_format: text with variables.
type template struct {
	begin  string
	pieces []piece
	raw    bool // values are not escaped
	clock  clock
	fields [][]int // indexes in pieces for each of Options.Fields
	values [][]byte
	at     [variables]int // the last piece of each variable, from 1; 0 for none
}

// templateFormat returns the format of an nginx log_format: its text alone, or the whole directive
// with name, escape parameter and quotes.
func templateFormat(text string) (format, error) {
	text, raw, err := configured(text)
	if err != nil {
		return format{}, err
	}
	t, err := newTemplate(text, nginxVariables, nil)
	if err != nil {
		return format{}, err
	}
	t.raw = raw
	return format{name: "log_format", begun: t.at[varTook] > 0, open: func(fields []string) parser {
		return t.copied(fields)
	}}, nil
}

// copied returns a copy of the template for one file.
func (t *template) copied(fields []string) *template {
	c := *t
	c.values = make([][]byte, len(c.pieces))
	c.fields = nil
	for _, field := range fields {
		var of []int
		for i, p := range c.pieces {
			if p.name == field {
				of = append(of, i)
			}
		}
		c.fields = append(c.fields, of)
	}
	return &c
}

// envoy returns a function that opens one of Envoy's text formats, which escape nothing.
func envoy(text string) func(fields []string) parser {
	return func(fields []string) parser {
		t, err := newTemplate(text, envoyVariables, fields)
		if err != nil {
			panic(err) // the text is a constant
		}
		t.raw = true
		return t
	}
}

// configured extracts the text of a log_format directive.
func configured(text string) (format string, raw bool, err error) {
	text = strings.TrimSuffix(strings.TrimSpace(text), ";")
	if rest, ok := strings.CutPrefix(text, "log_format"); ok {
		text = strings.TrimSpace(rest)
		if name := strings.IndexAny(text, " \t\n"); name >= 0 {
			text = strings.TrimSpace(text[name:])
		}
	}
	if rest, ok := strings.CutPrefix(text, "escape="); ok {
		how, rest, _ := strings.Cut(rest, " ")
		raw = strings.TrimSpace(how) == "none"
		text = strings.TrimSpace(rest)
	}
	if text == "" || text[0] != '\'' && (text[0] != '"' || text[len(text)-1] != '"' || strings.Count(text, `"`) != 2) {
		return text, raw, nil
	}
	var all strings.Builder
	for text != "" {
		quote := text[:1]
		end := strings.Index(text[1:], quote)
		if quote != "'" && quote != `"` || end < 0 {
			return "", false, fmt.Errorf("log_format: %q is not in quotes, unlike the text before it", text)
		}
		all.WriteString(text[1 : end+1])
		text = strings.TrimSpace(text[end+2:])
	}
	return all.String(), raw, nil
}

// newTemplate compiles a template.
func newTemplate(text string, known map[string]variable, fields []string) (*template, error) {
	t := &template{}
	text, t.begin = cutVariable(text)
	for text != "" {
		name, rest := variableName(text)
		if name == "" {
			return nil, fmt.Errorf("log_format: no variable after the $ of %q", text)
		}
		p := piece{name: name, is: known[name]}
		text, p.then = cutVariable(rest)
		if p.then == "" && text != "" && name != "is_args" {
			next, _ := variableName(text)
			if p.until = firstByte(next, known[next]); p.until == 0 {
				return nil, fmt.Errorf("log_format: the end of $%s and the beginning of $%s cannot be distinguished: put text between them", name, next)
			}
		}
		t.pieces = append(t.pieces, p)
		t.at[p.is] = len(t.pieces)
	}
	switch {
	case t.at[varStamp] == 0 && t.at[varExact] == 0:
		return nil, errors.New("log_format: it has no time: one of $time_local, $time_iso8601 and $msec")
	case t.at[varRequest] == 0 && (t.at[varMethod] == 0 || t.at[varTarget] == 0 && t.at[varPath] == 0):
		return nil, errors.New("log_format: it has no request: $request, or $request_method and one of $request_uri and $uri")
	}
	return t.copied(fields), nil
}

// cutVariable returns the text before the first $, and the rest from there on.
func cutVariable(text string) (rest, before string) {
	i := strings.IndexByte(text, '$')
	if i < 0 {
		return "", text
	}
	return text[i:], text[:i]
}

// variableName parses $name or ${name}.
func variableName(text string) (name, rest string) {
	text = text[1:]
	if inner, ok := strings.CutPrefix(text, "{"); ok {
		name, rest, ok = strings.Cut(inner, "}")
		if !ok {
			return "", text
		}
		return name, rest
	}
	n := 0
	for n < len(text) && (text[n] == '_' || isDigit(text[n]) || text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z') {
		n++
	}
	return text[:n], text[n:]
}

// firstByte returns the first byte of every value of a variable, or 0 if it is not known.
func firstByte(name string, v variable) byte {
	switch {
	case v == varTarget || v == varPath:
		return '/'
	// "?", or empty without a query; then the value before it extends to the end
	case name == "is_args":
		return '?'
	}
	return 0
}

func (t *template) has(field string) bool {
	return slices.ContainsFunc(t.pieces, func(p piece) bool { return p.name == field })
}

func (t *template) parse(b []byte, r *record) error {
	if err := t.split(b); err != nil {
		return err
	}
	at, err := t.time()
	if err != nil {
		return err
	}
	status := 0
	if text := t.value(varStatus); text != nil {
		if status, err = parseStatus(text); err != nil {
			return err
		}
	}
	for i, of := range t.fields {
		for _, piece := range of {
			r.extra[i] = given(t.plain(r.own(t.values[piece])))
		}
	}
	r.Time, r.Status = at, status
	r.took(inMilliseconds(t.value(varLasted)))
	r.took(inSeconds(t.value(varTook)))
	r.UserAgent, r.HasAgent = t.plain(t.value(varAgent)), t.at[varAgent] > 0
	if r.Peer = t.value(varPeer); r.Peer == nil {
		r.Peer = lastOf(t.value(varForwarded))
	}
	if r.Host = t.plain(t.value(varHost)); r.Host == nil {
		r.Host = t.plain(t.value(varServer))
	}
	if t.at[varRequest] > 0 {
		r.Method, r.Target = requestLine(t.plain(t.value(varRequest)))
		r.Target = r.origin(r.Target)
		return nil
	}
	target := t.plain(t.value(varTarget))
	if target == nil {
		target = t.plain(t.value(varPath))
		if query := t.plain(t.value(varQuery)); target != nil && query != nil {
			r.own(target)
			r.own([]byte{'?'})
			r.own(query)
			target = r.scratch[len(r.scratch)-len(target)-1-len(query):]
		}
	}
	if method := t.value(varMethod); target != nil && isMethod(method) {
		r.Method, r.Target = method, r.origin(target)
	}
	return nil
}

// time returns when the request began, or when it was logged if the line has no duration.
func (t *template) time() (int64, error) {
	text := t.value(varExact)
	if text == nil {
		text = t.value(varStamp)
	}
	at, ok := t.clock.any(text)
	if !ok {
		return 0, wrong("time", text, "has no known format")
	}
	if text = t.value(varTook); text != nil {
		took, ok := decimal(text, 1e9)
		if !ok {
			return 0, wrong("duration", text, "is not a number of seconds")
		}
		at -= took
	}
	return at, nil
}

// value returns the value of a variable, or nil for a variable without one.
func (t *template) value(v variable) []byte {
	if t.at[v] == 0 {
		return nil
	}
	return given(t.values[t.at[v]-1])
}

func (t *template) plain(text []byte) []byte {
	if t.raw {
		return text
	}
	return unescape(text)
}

// split splits a line into the values of its pieces.
func (t *template) split(b []byte) error {
	if !hasPrefix(b, t.begin) {
		return fmt.Errorf("it does not begin with %q", t.begin)
	}
	quote := strings.HasSuffix(t.begin, `"`)
	b = b[len(t.begin):]
	for i := range t.pieces {
		p := &t.pieces[i]
		end, ok := t.end(b, p, quote, i == len(t.pieces)-1)
		if !ok {
			return fmt.Errorf("no %q after $%s", p.then, p.name)
		}
		t.values[i], b = b[:end:end], b[end+len(p.then):]
		quote = strings.HasSuffix(p.then, `"`)
	}
	return nil
}

// end returns the index at which the value of a piece ends. quote means that the value follows a
// quote; last means that only p.then may follow it.
func (t *template) end(b []byte, p *piece, quote, last bool) (int, bool) {
	switch {
	case last && (t.raw || p.then == "" || p.then[0] != '"' || !quote):
		return len(b) - len(p.then), hasSuffix(b, p.then)
	case p.then == "" && p.until == 0: // is_args
		return len(b) - len(bytes.TrimPrefix(b, []byte{'?'})), true
	case p.then == "":
		for i, c := range b {
			if c == p.until || c == ' ' || c == '"' {
				return i, true
			}
		}
		return len(b), true
	case quote && p.then[0] == '"' && !t.raw:
		end := quoteEnd(b)
		return end, end >= 0 && hasPrefix(b[end:], p.then) && (!last || end+len(p.then) == len(b))
	case p.is == varUser && strings.IndexByte(p.then, '"') < 0:
		// The caller chooses the user's name, which may contain p.then. So the last p.then before
		// the next quote ends it.
		before := b
		if end := bytes.IndexByte(b, '"'); end >= 0 {
			before = b[:end]
		}
		end := bytes.LastIndex(before, []byte(p.then))
		return end, end >= 0
	}
	end := bytes.Index(b, []byte(p.then))
	return end, end >= 0
}

func hasPrefix(b []byte, s string) bool { return len(b) >= len(s) && string(b[:len(s)]) == s }
func hasSuffix(b []byte, s string) bool { return len(b) >= len(s) && string(b[len(b)-len(s):]) == s }
