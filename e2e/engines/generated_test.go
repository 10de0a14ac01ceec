package engines

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The parts of streams. The targets are canonical, so that all servers forward them
// unchanged.
var (
	methods = []string{"GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
	targets = []string{"/", "/a", "/a?x=1", "/a/204", "/a/304", "/a/404", "/a/chunked", "/a/close", "/a/until-close", "/few/a", "/few/a", "/few/b"}
	plain   = []string{"Accept: */*", "X-A: b", "X-A:", "Cookie: a=b; c=d", "Connection: keep-alive", "Connection: x-a"}
	bodies  = []string{"", "hello", "GET /inner HTTP/1.1\r\nHost: h\r\n\r\n", "0\r\n\r\n", strings.Repeat("x", 5000)}

	// hostile lines replace valid ones.
	hostile = []string{
		"Content-Length: 3", "Content-Length: 0", "Content-Length: +3", "Content-Length: 3, 3", "content-length : 3", "Content-Length: 99999999999999999999",
		"Transfer-Encoding: chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: identity", "Transfer-Encoding:\tchunked", "Transfer-Encoding : chunked",
		"transfer-encoding: gzip, chunked", "Transfer-Encoding: chunked\x0b", "Transfer_Encoding: chunked", " folded: chunked", "\tx", "X-A: b\nContent-Length: 3",
		"X-A: b\rContent-Length: 3", "Host: evil.example.com", "Host:", "Connection: close", "Connection: Content-Length", "Connection: Transfer-Encoding, Host",
		"Expect: 100-continue", "Expect: tea", "Upgrade: h2c", "TE: trailers", "Trailer: Content-Length", "X-A\x00: b", ": b", "X-A", "",
		"GET /inner HTTP/1.1", "X-Forwarded-For: 198.51.100.1",
	}
	// odd are bytes that have a special meaning somewhere.
	odd = []string{"\r", "\n", "\r\n", "\x00", " ", "\t", ":", ";", ",", "0", "5", "f", "-", "+", "\x0b", "\x7f", "\xff", "\r\n\r\n", "chunked", "0\r\n\r\n"}
)

// aRequest draws a request that all servers accept.
func aRequest(t *rapid.T) string {
	method := rapid.SampledFrom(methods).Draw(t, "method")
	lines := []string{method + " " + rapid.SampledFrom(targets).Draw(t, "target") + " HTTP/1.1", "Host: example.com"}
	lines = append(lines, rapid.SliceOfN(rapid.SampledFrom(plain), 0, 3).Draw(t, "fields")...)
	body := ""
	if method == "POST" || method == "PUT" {
		body = rapid.SampledFrom(bodies).Draw(t, "body")
		if rapid.Bool().Draw(t, "chunked") {
			lines = append(lines, "Transfer-Encoding: chunked")
			body = inChunks(t, body)
		} else {
			lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

func inChunks(t *rapid.T, body string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := rapid.IntRange(1, len(body)).Draw(t, "chunk")
		fmt.Fprintf(&b, "%x%s\r\n%s\r\n", n, rapid.SampledFrom([]string{"", "", "", ";x", `;x="y z"`}).Draw(t, "extension"), body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n" + rapid.SampledFrom([]string{"", "", "X-Sum: 1\r\n"}).Draw(t, "trailer") + "\r\n"
}

// mutated draws a hostile change of a stream.
func mutated(t *rapid.T, stream string) string {
	for range rapid.IntRange(1, 3).Draw(t, "mutations") {
		at := rapid.IntRange(0, len(stream)).Draw(t, "at")
		lines := strings.Split(stream, "\r\n")
		line := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			stream = stream[:at] + rapid.SampledFrom(odd).Draw(t, "odd") + stream[at:]
		case 1:
			stream = stream[:at] + stream[min(len(stream), at+rapid.IntRange(1, 4).Draw(t, "gone")):]
		case 2:
			stream = strings.Join(slices.Insert(lines, line, rapid.SampledFrom(hostile).Draw(t, "hostile")), "\r\n")
		case 3:
			lines[line] = rapid.SampledFrom(hostile).Draw(t, "hostile")
			stream = strings.Join(lines, "\r\n")
		case 4:
			stream = strings.Join(slices.Insert(lines, line, lines[line]), "\r\n")
		case 5:
			stream = strings.Join(lines[:line], "\r\n") + "\n" + strings.Join(lines[line:], "\r\n")
		}
	}
	return stream
}

// A trial is the outcomes of one stream.
type trial struct {
	stream string
	ours   []*outcome // in the order of engines
	nginx  *outcome   // nil if nginx was not asked
}

// try sends a stream to all subjects. net/http rejects an empty line before a
// request and the others skip it, so net/http gets the stream without such lines.
func try(t testing.TB, ours []*subject, nginx *subject, stream string, quiet time.Duration, seed uint64) trial {
	t.Helper()
	cut := whole
	if seed%2 == 1 {
		cut = func(s string) []string { return scattered(s, rand.New(rand.NewPCG(seed, seed))) }
	}
	tried := trial{stream: stream}
	for _, s := range ours {
		text := stream
		if s.name == "std" {
			text = withoutEmptyLines(stream)
		}
		tried.ours = append(tried.ours, s.send(t, cut(text+farewell), quiet))
	}
	if nginx != nil {
		tried.nginx = nginx.send(t, cut(stream+farewell), quiet)
	}
	return tried
}

// withoutEmptyLines removes one empty line before each request of a stream, as long
// as the requests can be parsed.
func withoutEmptyLines(stream string) string {
	var kept strings.Builder
	for rest := stream; ; {
		rest = strings.TrimPrefix(rest, "\r\n")
		from := strings.NewReader(rest)
		in := bufio.NewReaderSize(from, 16)
		m, err := readHead(in)
		length := int64(0)
		if err == nil {
			length, err = m.framing()
		}
		if length == -2 {
			length = 0 // of a request
		}
		if err == nil {
			err = m.readBody(in, length)
		}
		if err != nil || m.cut || len(rest) == 0 {
			return kept.String() + rest
		}
		n := len(rest) - from.Len() - in.Buffered()
		kept.WriteString(rest[:n])
		rest = rest[n:]
	}
}

// safety returns a violation of what must hold for any input, or "".
func (o *outcome) safety() string {
	if len(o.anomalies) > 0 || o.uncounted > 0 || o.strange != "" {
		return o.summary()
	}
	return ""
}

// problem returns what is wrong with a trial, or "".
func (tried *trial) problem() string {
	for i, o := range tried.ours {
		if wrong := o.safety(); wrong != "" {
			return engines[i].name + ": " + wrong
		}
	}
	first := tried.ours[0]
	for i, o := range tried.ours[1:] {
		if wrong := first.within(o, (*message).asPassed); wrong != "" {
			return fmt.Sprintf("%s: %s\n%s: %s\n%s", engines[0].name, first.summary(), engines[i+1].name, o.summary(), wrong)
		}
	}
	if tried.nginx == nil || slices.ContainsFunc(first.answers, func(m *message) bool { return m.status() == 405 || m.status() == 400 || m.status() == 429 }) {
		return "" // the gateway answered by itself and continued; nginx does not continue
	}
	if wrong := first.within(tried.nginx, (*message).asRead); wrong != "" {
		return fmt.Sprintf("%s: %s\nnginx: %s\n%s", engines[0].name, first.summary(), tried.nginx.summary(), wrong)
	}
	return ""
}

// asPassed formats a request as both engines forward it; asRead, as any server
// parses it.
func (m *message) asPassed() string {
	return m.full(func(name string) bool {
		// docs/engines.md
		return name != "x-forwarded-for" && name != "expect" && name != "host" && name != "user-agent" && name != "te"
	})
}

func (m *message) asRead() string {
	method, _, _ := strings.Cut(m.first, " ")
	return fmt.Sprintf("%s %q", method, m.body)
}

// within returns "" if the requests that o forwarded are a prefix of the other's,
// and otherwise the reason. If the other waits for input, it may have forwarded
// fewer, but never in another form.
func (o *outcome) within(other *outcome, form func(*message) string) string {
	mine, theirs := wholeOnes(o.requests), wholeOnes(other.requests)
	for i := range min(len(mine), len(theirs)) {
		if a, b := form(mine[i]), form(theirs[i]); a != b {
			return fmt.Sprintf("request %d is\n%s\nand\n%s", i+1, a, b)
		}
	}
	if len(mine) > len(theirs) && len(theirs) > 0 && strings.HasSuffix(other.summary(), " end") {
		return "the second has fewer requests, and refused none"
	}
	return ""
}

func wholeOnes(all []*message) []*message {
	return slices.DeleteFunc(slices.Clone(all), func(m *message) bool { return m.cut })
}

// check tries a stream. If a busy machine may explain a difference, it tries again
// more slowly.
func check(t testing.TB, ours []*subject, nginx *subject, stream string, seed uint64) string {
	t.Helper()
	problem := ""
	for _, quiet := range []time.Duration{quiets[0] / 2, quiets[1], quiets[2]} {
		tried := try(t, ours, nginx, stream, quiet, seed)
		if problem = tried.problem(); problem == "" {
			return ""
		}
	}
	return fmt.Sprintf("%q\n%s", stream, problem)
}

func newEngines(t testing.TB) []*subject {
	t.Helper()
	ours := make([]*subject, 0, len(engines))
	for _, e := range engines {
		ours = append(ours, newGateway(t, e.name, e.engine, wellBehaved))
	}
	return ours
}

// All servers forward valid streams equally, and return equal answers.
func TestValidGeneratedStreams(t *testing.T) {
	ours, nginx := newEngines(t), newNginx(t, wellBehaved)
	rapid.Check(t, func(rt *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(rapid.Custom(aRequest), 1, 6).Draw(rt, "requests"), "")
		seed := rapid.Uint64().Draw(rt, "pieces")
		var problem string
		for _, quiet := range quiets {
			tried := try(t, ours, nginx, stream, quiet, seed)
			if problem = tried.problem(); problem != "" {
				continue
			}
			for i, o := range tried.ours[1:] {
				problem += differ(tried.ours[0].detail(every), o.detail(every), engines[0].name, engines[i+1].name)
			}
			if problem == "" {
				return
			}
		}
		rt.Fatalf("%q\n%s", stream, problem)
	})
}

// For any input, at most the counted requests reach the upstream. The fast engine
// forwards no bytes that net/http or nginx would parse differently.
func TestGeneratedStreams(t *testing.T) {
	ours, nginx := newEngines(t), newNginx(t, wellBehaved)
	rapid.Check(t, func(rt *rapid.T) {
		stream := mutated(rt, strings.Join(rapid.SliceOfN(rapid.Custom(aRequest), 1, 4).Draw(rt, "requests"), ""))
		if problem := check(t, ours, nginx, stream, rapid.Uint64().Draw(rt, "pieces")); problem != "" {
			rt.Fatal(problem)
		}
	})
}

// FuzzStreams is TestGeneratedStreams for any input.
func FuzzStreams(f *testing.F) {
	for _, c := range readCases(f) {
		if stream := strings.Join(c.parts, ""); len(stream) < 4<<10 && !strings.Contains(c.want, "waits") {
			f.Add([]byte(stream), uint64(0))
		}
	}
	ours := newEngines(f)
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		if len(stream) > 64<<10 {
			return // longer streams are slow, and find no more
		}
		if problem := check(t, ours, nil, string(stream), seed); problem != "" {
			t.Fatal(problem)
		}
	})
}
