package meter

import (
	"strings"
	"testing"
	"unsafe"
)

// read returns what a Meter reads of a body that comes in pieces of at most size bytes.
func read(path string, kind Kind, body string, size int) (n int64, ok bool) {
	var m Meter
	m.Reset(path, kind)
	for len(body) > 0 {
		piece := body[:min(size, len(body))]
		m.Write([]byte(piece))
		body = body[len(piece):]
	}
	return m.Units()
}

const none = -1

// orNone returns the units that were read, and none if there were none.
func orNone(n int64, ok bool) int64 {
	if !ok {
		return none
	}
	return n
}

func TestAMemberOfAJSONTextTells(t *testing.T) {
	const path = "usage.total_tokens"
	for _, test := range []struct {
		name, body string
		want       int64
	}{
		{"a member", `{"usage":{"total_tokens":17}}`, 17},
		{"zero", `{"usage":{"total_tokens":0}}`, 0},
		{"2^31-1", `{"usage":{"total_tokens":2147483647}}`, 2147483647},
		{"blanks", " {\r\n\t\"usage\" : { \"total_tokens\" : 17 } }\n", 17},
		{"among others", `{"id":"x","a":[1,-2.5e+3,{"b":null}],"usage":{"prompt":5,"total_tokens":17,"c":true},"d":false}`, 17},
		{"an escaped name", `{"\u0075s\u0061ge":{"total\u005Ftokens":17}}`, 17},
		{"the name in a string", `{"a":"\"usage\":{\"total_tokens\":1}","usage":{"total_tokens":17}}`, 17},
		{"the name deeper", `{"a":{"usage":{"total_tokens":1}},"usage":{"a":{"total_tokens":2},"total_tokens":17}}`, 17},
		{"the name in an array", `{"a":[{"usage":{"total_tokens":1}}],"usage":{"total_tokens":17}}`, 17},
		{"the name in another object", `{"total_tokens":1,"usage":{"total_tokens":17},"b":{"total_tokens":3}}`, 17},
		{"a longer name", `{"usage":{"total_tokens_all":1,"total_tokens":17,"total":2}}`, 17},
		{"the name with a letter in the other case", `{"usage":{"Total_tokens":1}}`, none},
		{"half a pair after the name", `{"usage\ud800":{"total_tokens":1}}`, none},

		{"missing", `{"usage":{"prompt":5}}`, none},
		{"empty", ``, none},
		{"in an array", `[{"usage":{"total_tokens":17}}]`, none},
		{"the way is an array", `{"usage":[{"total_tokens":17}]}`, none},
		{"the way is a number", `{"usage":17}`, none},
		{"the path as one name", `{"usage.total_tokens":17}`, none},
		{"negative", `{"usage":{"total_tokens":-17}}`, none},
		{"minus zero", `{"usage":{"total_tokens":-0}}`, none},
		{"a fraction", `{"usage":{"total_tokens":17.0}}`, none},
		{"an exponent", `{"usage":{"total_tokens":1e1}}`, none},
		{"2^31", `{"usage":{"total_tokens":2147483648}}`, none},
		{"2^63", `{"usage":{"total_tokens":9223372036854775808}}`, none},
		{"2^64 and 5", `{"usage":{"total_tokens":18446744073709551621}}`, none},
		{"a leading zero", `{"usage":{"total_tokens":017}}`, none},
		{"a string", `{"usage":{"total_tokens":"17"}}`, none},
		{"null", `{"usage":{"total_tokens":null}}`, none},
		{"true", `{"usage":{"total_tokens":true}}`, none},
		{"an array", `{"usage":{"total_tokens":[17]}}`, none},
		{"an object", `{"usage":{"total_tokens":{"total_tokens":17}}}`, none},
		{"twice", `{"usage":{"total_tokens":17,"total_tokens":18}}`, none},
		{"twice the same", `{"usage":{"total_tokens":17,"total_tokens":17}}`, none},
		{"twice, once escaped", `{"usage":{"total_tokens":17,"total_token\u0073":1}}`, none},
		{"the way twice", `{"usage":{"total_tokens":17},"usage":{}}`, none},
		{"the way twice, and once no object", `{"usage":1,"usage":{"total_tokens":17}}`, none},

		{"broken off", `{"usage":{"total_tokens":17}`, none},
		{"broken off in the number", `{"usage":{"total_tokens":17`, none},
		{"followed by more", `{"usage":{"total_tokens":17}}{}`, none},
		{"followed by garbage", `{"usage":{"total_tokens":17}}x`, none},
		{"the wrong end", `{"usage":{"total_tokens":17]}`, none},
		{"a comma too many", `{"usage":{"total_tokens":17,}}`, none},
		{"no comma", `{"usage":{"total_tokens":17 "a":1}}`, none},
		{"a control character", "{\"a\":\"\n\",\"usage\":{\"total_tokens\":17}}", none},
		{"an unknown escape", `{"a":"\x","usage":{"total_tokens":17}}`, none},
		{"an unknown word", `{"a":nil,"usage":{"total_tokens":17}}`, none},
		{"a byte order mark", "\ufeff" + `{"usage":{"total_tokens":17}}`, none},
		{"as deep as encoding/json reads", `{"a":` + nested(9_999) + `,"usage":{"total_tokens":17}}`, 17},
		{"one deeper", `{"a":` + nested(10_000) + `,"usage":{"total_tokens":17}}`, none},
		{"never closed", strings.Repeat(`{"usage":`, 10_000), none},
	} {
		t.Run(test.name, func(t *testing.T) { wantEverySize(t, path, JSON, test.body, test.want) })
	}
}

// What a lax reader may take for a name of the path makes a caller's text ambiguous. It changes
// nothing in a backend's.
func TestANameThatMayBeTakenForThePathsTellsNothing(t *testing.T) {
	const path = "generation.max_tokens"
	for _, test := range []struct {
		name, body string
		want       int64 // of a caller's text
	}{
		{"the name alone", `{"generation":{"max_tokens":1}}`, 1},
		{"no lookalike", `{"generations":{"max_tokens":9},"generation":{"max_token":9,"max_tokenss":9,"_":9,"":9,"max_tokens":1}}`, 1},
		{"a lookalike elsewhere", `{"MAX_TOKENS":9,"a":{"generation":{"Max_Tokens":9}},"generation":{"max_tokens":1,"a":{"MAX_TOKENS":9}}}`, 1},
		{"in capitals", `{"generation":{"max_tokens":1,"MAX_TOKENS":9}}`, none},
		{"in capitals, before", `{"generation":{"MAX_TOKENS":9,"max_tokens":1}}`, none},
		{"of the object", `{"generation":{"max_tokens":1},"Generation":{"max_tokens":9}}`, none},
		{"that is null", `{"generation":{"max_tokens":1,"Max_tokens":null}}`, none},
		{"alone", `{"generation":{"Max_Tokens":9}}`, none},
		{"with one escape", `{"generation":{"max_tokens":1,"max_token\u0053":9}}`, none},
		{"a long s", `{"generation":{"max_tokens":1,"max_tokenſ":9}}`, none},
		{"an escaped sign of kelvin", `{"generation":{"max_tokens":1,"max_to\u212aens":9}}`, none},
		{"without the line", `{"generation":{"max_tokens":1,"maxTokens":9}}`, none},
		{"with many", `{"generation":{"max_tokens":1,"` + strings.Repeat("_-", 1000) + `max-tokens":9}}`, none},
		{"before a NUL", `{"generation":{"max_tokens":1,"max_tokens\u0000x":9}}`, none},
		{"a pair after the name", `{"generation":{"max_tokens":1,"max_tokens\ud83d\ude00":9}}`, 1},
		{"a very long name", `{"generation":{"max_tokens":1,"` + strings.Repeat("m", 5000) + `":9}}`, 1},
	} {
		wantEverySize(t, path, CallersJSON, test.body, test.want)
		if backends := orNone(read(path, JSON, test.body, 7)); test.want == none && test.name != "alone" && backends != 1 {
			t.Errorf("%s: of a backend %d is read, want 1", test.name, backends)
		}
	}
	wantEverySize(t, strings.Repeat("k", 128), CallersJSON, `{"`+strings.Repeat("k", 128)+`":1,"`+strings.Repeat("\u212a", 128)+`":9}`, none)
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestTheLastEventWithTheMemberTells(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       int64
	}{
		{"one event", "data: {\"n\":5}\n\n", 5},
		{"no blank", "data:{\"n\":5}\n\n", 5},
		{"CRLF", "data: {\"n\":5}\r\n\r\n", 5},
		{"CR", "data: {\"n\":5}\r\r", 5},
		{"a byte order mark", "\ufeffdata: {\"n\":5}\n\n", 5},
		{"half a byte order mark", "\xef\xbbdata: {\"n\":5}\n\n", none},
		{"other fields and comments", ": hello\nevent: usage\nid: 7\ndata: {\"n\":5}\nretry: 10\n\n", 5},
		{"lines of data are joined", "data: {\"n\":\ndata: 5\ndata: }\n\n", 5},
		{"no line ends within a string", "data: {\"a\":\"\ndata: \",\"n\":5}\n\n", none},
		{"the last", "data: {\"n\":5}\n\ndata: {\"n\":7}\n\n", 7},
		{"without the member after it", "data: {\"n\":5}\n\ndata: {\"a\":7}\n\ndata: [DONE]\n\n", 5},
		{"null after it", "data: {\"n\":5}\n\ndata: {\"n\":null}\n\n", 5},
		{"null before it", "data: {\"n\":null}\n\ndata: {\"n\":5}\n\n", 5},
		{"an invalid member after it", "data: {\"n\":5}\n\ndata: {\"n\":-7}\n\n", none},
		{"an invalid member before it", "data: {\"n\":-7}\n\ndata: {\"n\":5}\n\n", 5},
		{"invalid JSON after it", "data: {\"n\":5}\n\ndata: {\"n\":7\n\n", 5},
		{"broken off in the next event", "data: {\"n\":5}\n\ndata: {\"n\":", 5},
		{"broken off after the object", "data: {\"n\":5}", 5},
		{"a name that begins with data", "data2: {\"n\":5}\n\n", none},
		{"a shorter name", "dat: {\"n\":5}\n\n", none},
		{"a field without a colon", "data\ndata: {\"n\":5}\n\n", 5},
		{"a comment that looks like data", ":data: {\"n\":5}\n\n", none},
		{"a blank before the name", " data: {\"n\":5}\n\n", none},
		{"not an event stream", "{\"n\":5}", none},
		{"empty", "", none},
	} {
		t.Run(test.name, func(t *testing.T) { wantEverySize(t, "n", Events, test.body, test.want) })
	}
}

// wantEverySize checks what is read of a body, in one piece and in pieces of 1 to 9 bytes.
func wantEverySize(t *testing.T, path string, kind Kind, body string, want int64) {
	t.Helper()
	for _, size := range []int{len(body) + 1, 1, 2, 3, 4, 5, 6, 7, 8, 9} {
		if got := orNone(read(path, kind, body, size)); got != want {
			t.Errorf("in pieces of %d bytes it reads %d, want %d", size, got, want)
		}
	}
}

func TestAMeterIsUsedAgain(t *testing.T) {
	var m Meter
	for _, test := range []struct {
		path, body string
		kind       Kind
		want       int64
	}{
		{"a.b", `{"a":{"b":1}`, JSON, none},
		{"a.b", `{"a":{"b":2}}`, JSON, 2},
		{"n", "data: {\"n\":3}\n\ndata: {\"n\"", Events, 3},
		{"n", "data: 4\n\n", Events, none},
		{"n", `{"n":5}`, JSON, 5},
	} {
		m.Reset(test.path, test.kind)
		m.Write([]byte(test.body))
		if got := orNone(m.Units()); got != test.want {
			t.Errorf("%q is read as %d, want %d", test.body, got, test.want)
		}
	}
}

func TestAMeterIsSmallAndAllocatesNothing(t *testing.T) {
	if size := unsafe.Sizeof(Meter{}); size > 2<<10 {
		t.Errorf("a Meter has %d bytes, at most 2 KiB are allowed", size)
	}
	body := []byte(`{"a":"` + strings.Repeat(`\u0041\\b`, 500) + `","s":` + nested(9_000) + `,"n":5}`)
	var m Meter
	allocations := testing.AllocsPerRun(10, func() {
		m.Reset("n", JSON)
		m.Write(body)
	})
	if n, ok := m.Units(); allocations > 0 || n != 5 || !ok {
		t.Errorf("%v allocations a body, and %d is read", allocations, n)
	}
}

func BenchmarkMeter(b *testing.B) {
	for _, bench := range []struct {
		name string
		kind Kind
		body string
	}{
		{"an answer of a language model, 4 KiB", JSON, answerOf(4 << 10)},
		{"rows of numbers, 4 KiB", JSON, rowsOf(4 << 10)},
		{"an event stream, 4 KiB", Events, streamOf(4 << 10)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			body := []byte(bench.body)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			var m Meter
			for b.Loop() {
				m.Reset("usage.total_tokens", bench.kind)
				m.Write(body)
			}
			if n, ok := m.Units(); n != 17 || !ok {
				b.Fatalf("%d is read", n)
			}
		})
	}
}

const usage = `"usage":{"prompt_tokens":5,"completion_tokens":12,"total_tokens":17}}`

func answerOf(size int) string {
	const head = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"`
	const tail = `"},"finish_reason":"stop"}],`
	return head + strings.Repeat(`A sentence of an answer.\n`, size/25)[:(size-len(head)-len(tail)-len(usage))/25*25] + tail + usage
}

func rowsOf(size int) string {
	rows := strings.Repeat(`{"id":12345,"score":0.875},`, size/27)
	return `{"rows":[` + rows[:len(rows)-1] + `],` + usage
}

func streamOf(size int) string {
	const event = "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}],\"usage\":null}\n\n"
	return strings.Repeat(event, size/len(event)) + "data: {\"choices\":[]," + usage + "\n\ndata: [DONE]\n\n"
}
