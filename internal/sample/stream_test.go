package sample

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestAStreamTellsThePastAndThenThePresent(t *testing.T) {
	k := setUpWith(t, Options{Watch: time.Hour})
	k.widget("POST events", `{"type":"page.view","data":{"text":"a\nb\r\nc\u2028d"}}`).want(202)
	k.report(40) // more than one page of a stream
	url := k.live()
	p := k.listen(url, k.session, "")
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff", "Vary": "Accept"} {
		t.Run(name, func(t *testing.T) {
			if got := p.res.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		})
	}
	all := k.widget("GET events", "").want(200)
	conversation := all.text("conversation_id")
	for i := range 42 {
		f, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(f.data), &got); err != nil {
			t.Fatalf("%q: %v", f.data, err)
		}
		want := all.at(fmt.Sprint("items.", i)).(map[string]any)
		want["conversation_id"] = conversation
		if !reflect.DeepEqual(got, want) || f.id != fmt.Sprintf("%s/%d", conversation, i+1) {
			t.Fatalf("frame %d is %+v, want the data %v", i+1, f, want)
		}
	}
	k.report(1)
	p.wantEvents(43, 43)
	k.widget("POST messages", `{"text":"hello"}`).want(201) // two at once
	k.widget("POST conversations", "").want(201)            // the stream does not switch to it
	k.widget("POST conversations/"+conversation+"/close", "").want(200)
	p.wantEvents(44, 46)
	p.leave()
	k.wantNobody()
}

// The rules are those of RFC 9110, section 12.5.1.
func TestAStreamIsAskedForByName(t *testing.T) {
	k := setUp(t)
	const stream, plain = "text/event-stream", "application/json"
	for accept, want := range map[string]string{
		"":                           plain,
		"*/*":                        plain,
		"text/*":                     plain,
		"text/event-stream":          stream,
		"Text/Event-Stream":          stream,
		"text/event-stream;q=0":      plain,
		"text/event-stream;q=0.0":    plain,
		"text/event-stream; q=0.001": stream,
		"text/event-stream;q=2":      plain,
		"text/event-stream;q=x":      plain,
		"text/event-stream;q=NaN":    plain,
		"text/event-streams":         plain,
		"text/html, text/event-stream;q=0.5, */*":           stream,
		"application/json, text/event-stream":               stream,
		"application/json, text/event-stream;q=0.9":         plain,
		"application/json;q=0.2, text/event-stream;q=0.9":   stream,
		"text/event-stream;charset=utf-8":                   stream,
		`text/html;x="text/event-stream", application/json`: plain,
	} {
		t.Run(accept, func(t *testing.T) {
			a := k.send("HEAD /api/v1/widget/events", k.session, "", "Accept", accept).want(200)
			if got := a.header.Get("Content-Type"); got != want {
				t.Errorf("Accept: %s is answered with %s, want %s", accept, got, want)
			}
		})
	}
}

func TestHeadNeverWaitsOrStreams(t *testing.T) {
	k := setUp(t)
	// otherwise the test times out
	k.send("HEAD /api/v1/widget/events?after=1&wait=25", k.session, "").want(200)
	a := k.send("HEAD /api/v1/widget/events", k.session, "", "Accept", "text/event-stream").want(200)
	if len(a.body) > 0 || a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("the answer is %v %q", a.header, a.body)
	}
	k.send("HEAD /api/v1/widget/events?after=2", k.session, "", "Accept", "text/event-stream").want(400)
	k.wantNobody()
}

func TestAStreamResumesWhereItsClientWas(t *testing.T) {
	k := setUp(t)
	k.report(9) // 10 in all
	first := k.widget("GET conversations", "").text("items.0.id")
	second := k.widget("POST conversations", "").want(201).text("id")
	url := k.live()
	for _, c := range []struct {
		query, last string
		from, to    int64
		of          string
	}{
		{"?after=0", "", 1, 1, second},
		{"?after=7&conversation_id=" + first, "", 8, 10, first},
		{"", first + "/4", 5, 10, first},
		// the browser's own reconnection uses the initial URL
		{"?after=9", first + "/8", 9, 10, first},
		{"?after=99&conversation_id=" + first, first + "/0", 1, 10, first},
		{"?agent_id=demo", second + "/0", 1, 1, second},
	} {
		p := k.listen(url, k.session, c.query, "Last-Event-ID", c.last)
		p.wantEvents(c.from, c.to)
		if want := fmt.Sprint(c.of, "/", c.to); p.lastID != want {
			t.Errorf("%s, %q: the last id is %s, want %s", c.query, c.last, p.lastID, want)
		}
		p.leave()
	}
}

func TestABadPlaceInTheFeedIsRefusedByName(t *testing.T) {
	k := setUp(t)
	mine := k.widget("GET conversations", "").text("items.0.id")
	other := k.widget("POST conversations", "").want(201).text("id")
	foreign := k.send("GET /api/v1/widget/conversations", k.visitor("demo"), "").text("items.0.id")
	for _, c := range []struct {
		query, last string
		status      int
		word        string
	}{
		{"?limit=5", "", 400, "limit"},
		{"?wait=5", "", 400, "wait"},
		{"?wait=", "", 400, "wait"},
		{"?after=x", "", 400, "after"},
		{"?after=-1", mine + "/0", 400, "after"},
		{"?after=2", "", 400, "2"},
		{"?nonsense=1", "", 400, "nonsense"},
		{"?conversation_id=" + foreign, "", 404, foreign},
		{"?conversation_id=" + other, mine + "/0", 400, "Last-Event-ID"},
		{"", mine + "/2", 400, "2"},
		{"", mine, 400, "Last-Event-ID"},
		{"", mine + "/", 400, "Last-Event-ID"},
		{"", "/1", 400, "Last-Event-ID"},
		{"", "1", 400, "Last-Event-ID"},
		{"", mine + "/01", 400, "Last-Event-ID"},
		{"", mine + "/+1", 400, "Last-Event-ID"},
		{"", mine + "/-1", 400, "Last-Event-ID"},
		{"", mine + "/1/1", 400, "Last-Event-ID"},
		{"", mine + "/9223372036854775808", 400, "Last-Event-ID"},
		{"", mine + "/9223372036854775807", 400, "9223372036854775807"},
		{"", strings.Repeat("x", 65) + "/1", 400, "Last-Event-ID"},
		{"", foreign + "/1", 404, foreign},
		{"", "cnv_nothing/0", 404, "cnv_nothing"},
	} {
		a := k.send("GET /api/v1/widget/events"+c.query, k.session, "", "Accept", "text/event-stream", "Last-Event-ID", c.last)
		a.wantError(c.status, codes[c.status], c.word)
	}
	for _, wait := range []string{"26", "-1", "x", "1.5", "1s", "0x1", "99999999999999999999"} {
		k.widget("GET events?wait="+wait, "").wantError(400, "invalid_request", "wait", "25")
	}
	k.widget("GET events?wait=0&limit=1", "").want(200)
	k.widget("GET events?after=2&wait=25", "").wantError(400, "invalid_request", "2", "beyond")
	k.send("GET /api/v1/widget/events", "", "", "Accept", "text/event-stream").wantError(401, "unauthenticated")
	k.wantNobody()
}

func TestAWaitEndsWithTheFirstEventAfterIt(t *testing.T) {
	k := setUpWith(t, Options{Watch: time.Hour})
	mine := k.widget("GET conversations", "").text("items.0.id")
	k.widget("GET events?wait=25", "").want(200).says("next", 1.0) // there is one already
	answered := make(chan reply)
	go func() { answered <- k.widget("GET events?after=1&wait=25", "") }()
	eventually(t, "it waits", func() bool { n, _, _, _ := k.holds(); return n == 1 })
	k.widget("POST conversations", "").want(201) // not the one that the wait is for
	k.widget("POST events", `{"type":"a","conversation_id":"`+mine+`"}`).want(202)
	a := <-answered
	a.want(200).says("items.0.type", "a").says("next", 2.0).says("more", false).says("conversation_id", mine)
	k.wantNobody()

	a = k.widget("GET events?after=2&wait=1&conversation_id="+mine, "").want(200).says("next", 2.0).says("more", false)
	if items := a.at("items").([]any); len(items) != 0 {
		t.Errorf("after its time a wait finds %v", items)
	}
	k.wantNobody()
}

// No event is missed between reading and listening: only its own notification wakes a wait here.
func TestNoWakeUpIsMissed(t *testing.T) {
	k := setUpWith(t, Options{Watch: time.Hour})
	for i := range 150 {
		reported := make(chan struct{})
		go func() {
			defer close(reported)
			k.report(1)
		}()
		a := k.widget(fmt.Sprintf("GET events?after=%d&wait=25", i+1), "").want(200)
		if items := a.at("items").([]any); len(items) != 1 {
			t.Fatalf("wait %d missed its event", i)
		}
		<-reported
	}
}

func TestAQuietStreamShowsThatItLives(t *testing.T) {
	k := setUpWith(t, Options{Heartbeat: 5 * time.Millisecond})
	p := k.listen(k.live(), k.session, "?after=1")
	for range 3 {
		if f, err := p.next(); err != nil || f != (frame{comment: ":\n"}) {
			t.Fatalf("a quiet stream yields %+v, %v", f, err)
		}
	}
	k.report(1)
	p.wantEvents(2, 2)
}

// A stream ends when the session's token expires: by a timer, and by the clock if that advances
// differently.
func TestNothingIsHeldBeyondTheToken(t *testing.T) {
	for name, c := range map[string]struct {
		left time.Duration // when they are opened
		o    Options
	}{
		"timer": {100 * time.Millisecond, Options{Heartbeat: time.Hour}},
		"clock": {sessionLife, Options{Heartbeat: 20 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			k := setUpWith(t, c.o)
			url := k.live()
			k.clock.pass(sessionLife - c.left)
			p := k.listen(url, k.session, "?after=1")
			var waited *tape
			if name == "timer" { // a wait is too short to check the clock again
				waited = k.get(url, k.session, "?after=1&wait=25")
			}
			k.clock.pass(c.left)
			if comments := p.wantEnd(); !strings.Contains(comments, "expired") {
				t.Errorf("the stream ends with %q", comments)
			}
			if waited != nil {
				if body, err := io.ReadAll(waited.res.Body); err != nil || !strings.Contains(string(body), `"items":[]`) {
					t.Errorf("at the end of its token a wait is answered %s, %v", body, err)
				}
			}
			k.widget("GET events", "").wantError(401, "unauthenticated")
			k.wantNobody()
		})
	}
}

func TestADrainEndsWhatIsHeld(t *testing.T) {
	k := setUp(t)
	url := k.live()
	p := k.listen(url, k.session, "")
	p.wantEvents(1, 1)
	answered := make(chan *tape)
	go func() { answered <- k.get(url, k.session, "?after=1&wait=25") }()
	eventually(t, "both are held", func() bool { n, _, _, _ := k.holds(); return n == 2 })
	k.b.Drain()
	k.b.Drain()
	if comments := p.wantEnd(); !strings.Contains(comments, "restarts") {
		t.Errorf("the stream ends with %q", comments)
	}
	waited := <-answered
	if body, err := io.ReadAll(waited.res.Body); err != nil || waited.res.StatusCode != http.StatusOK || !strings.Contains(string(body), `"items":[]`) {
		t.Errorf("a wait is answered %d %s, %v", waited.res.StatusCode, body, err)
	}
	k.listen(url, k.session, "").wantEnd()               // a late client
	k.widget("GET events?after=1&wait=25", "").want(200) // otherwise the test times out
	k.wantNobody()
}
