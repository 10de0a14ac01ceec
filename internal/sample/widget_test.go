package sample

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestInitStartsASessionWithAConversation(t *testing.T) {
	k := setUp(t)
	for name, send := range map[string]func(*bench) reply{
		"body":            func(k *bench) reply { return k.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`) },
		"query, no body":  func(k *bench) reply { return k.send("POST /api/v1/widget/init?agent_id=demo", "", "") },
		"header, no body": func(k *bench) reply { return k.send("POST /api/v1/widget/init", "", "", "X-Agent-Id", "demo") },
		"header before body": func(k *bench) reply {
			return k.send("POST /api/v1/widget/init", "", `{"agent_id":"other"}`, "X-Agent-Id", "demo")
		},
		"charset is given": func(k *bench) reply {
			return k.send("POST /api/v1/widget/init", "", `{"agent_id":"demo"}`, "Content-Type", "application/json; charset=UTF-8")
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := k.in(t)
			a := send(k).want(201).says("expires_at", "2026-03-02T12:00:00Z")
			if cached := a.header.Get("Cache-Control"); cached != "no-store" {
				t.Errorf("Cache-Control is %q: a cache may keep a session's token", cached)
			}
			session := "Bearer " + a.text("token")
			list := k.send("GET /api/v1/widget/conversations", session, "").want(200)
			list.says("items.0.id", a.text("conversation_id")).says("items.0.status", "open").says("next", nil)
		})
	}
}

func TestASessionEndsAtItsExpiry(t *testing.T) {
	k := setUp(t)
	k.clock.pass(24*time.Hour - time.Second)
	k.widget("GET conversations", "").want(200)
	k.clock.pass(time.Second)
	k.widget("GET conversations", "").wantError(401, "unauthenticated", "POST /api/v1/widget/init")
}

func TestAMessageIsStoredAndAnswered(t *testing.T) {
	k := setUp(t)
	text := "Où est ma commande ?\n\tمرحبا e\u0301 👋"
	a := k.widget("POST messages", fmt.Sprintf(`{"text":%q}`, text)).want(201)
	a.says("message.text", text).says("message.author", "visitor").says("reply.author", "assistant")
	if a.text("reply.text") == "" || len(a.at("reply.sources").([]any)) != 0 {
		t.Errorf("the reply is %s, want a sentence and an empty list of sources", a.body)
	}
	read := k.widget("GET conversations/"+a.text("message.conversation_id"), "").want(200)
	read.says("message_count", 2.0).says("messages.items.0.text", text).says("messages.items.1.id", a.text("reply.id")).says("messages.next", nil)
}

func TestMessagesArePagedInOrderEachOnce(t *testing.T) {
	k := setUp(t)
	for i := range 7 {
		k.widget("POST messages", fmt.Sprintf(`{"text":"question %d"}`, i)).want(201)
	}
	id := k.widget("GET conversations", "").text("items.0.id")
	var texts []string
	for after := ""; ; {
		page := k.widget("GET conversations/"+id+"?limit=3&after="+after, "").want(200)
		for _, m := range page.at("messages.items").([]any) {
			if m := m.(map[string]any); m["author"] == "visitor" {
				texts = append(texts, m["text"].(string))
			}
		}
		if page.at("messages.next") == nil {
			break
		}
		after = page.text("messages.next")
	}
	if got := strings.Join(texts, ","); got != "question 0,question 1,question 2,question 3,question 4,question 5,question 6" {
		t.Errorf("the pages hold %s", got)
	}
}

func TestConversationsStartListReadAndClose(t *testing.T) {
	k := setUp(t)
	first := k.widget("GET conversations", "").text("items.0.id")
	k.clock.pass(time.Second)
	second := k.widget("POST conversations", "").want(201).says("status", "open").says("closed_at", nil).text("id")
	third := k.widget("POST conversations", "{}").want(201).text("id")

	page := k.widget("GET conversations?limit=2", "").want(200).says("items.0.id", first).says("items.1.id", second).says("next", second)
	k.widget("GET conversations?limit=2&after="+page.text("next"), "").want(200).says("items.0.id", third).says("next", nil)

	// the newest open one
	k.widget("POST messages", `{"text":"hello"}`).want(201).says("message.conversation_id", third)
	closed := k.widget("POST conversations/"+third+"/close", "").want(200).says("status", "closed").text("closed_at")
	k.clock.pass(time.Hour)
	// a second close changes nothing
	k.widget("POST conversations/"+third+"/close", "").want(200).says("closed_at", closed)
	k.widget("POST messages", `{"text":"hello"}`).want(201).says("message.conversation_id", second)
	k.widget("POST messages", `{"text":"hello","conversation_id":"`+third+`"}`).wantError(409, "conflict", third, "closed")
	k.widget("POST conversations/"+first+"/close", "").want(200)
	k.widget("POST conversations/"+second+"/close", "").want(200)
	for _, target := range []string{"POST messages", "POST events", "POST typing"} {
		body := map[string]string{"POST messages": `{"text":"x"}`, "POST events": `{"type":"x"}`, "POST typing": `{"typing":true}`}[target]
		k.widget(target, body).wantError(409, "conflict", "POST /api/v1/widget/conversations")
	}
	k.widget("POST satisfaction", `{"score":5}`).want(201) // a rating is given at the end
	k.widget("GET events", "").want(200).says("conversation_id", third)
}

func TestTheFeedTellsWhatHappenedInOrder(t *testing.T) {
	k := setUp(t)
	k.widget("POST events", `{"type":"page.view","data":{"url":"/a","n":1.50, "deep":[{"x":null}]}}`).want(202).says("id", 2.0)
	k.widget("POST typing", `{"typing":true}`).want(204)
	k.widget("POST typing", `{"typing":true}`).want(204) // no change
	k.widget("POST typing", `{"typing":false}`).want(204)
	k.widget("POST messages", `{"text":"hello"}`).want(201)
	k.widget("POST satisfaction", `{"score":4,"comment":"fine"}`).want(201)

	all := k.widget("GET events", "").want(200).says("more", false).says("next", 7.0)
	for i, want := range []string{"conversation.started", "page.view", "visitor.typing", "visitor.typing", "message.created", "message.created", "satisfaction.given"} {
		all.says(fmt.Sprintf("items.%d.type", i), want).says(fmt.Sprintf("items.%d.id", i), float64(i+1))
	}
	all.says("items.1.source", "visitor").says("items.1.data.url", "/a").says("items.0.data", nil).says("items.0.source", "server")
	if !strings.Contains(string(all.body), `"n":1.50`) {
		t.Errorf("the feed changed the data's number: %s", all.body)
	}
	some := k.widget("GET events?after=2&limit=2", "").want(200).says("more", true).says("next", 4.0).says("items.0.id", 3.0)
	k.widget(fmt.Sprintf("GET events?after=%v", some.at("next")), "").want(200).says("items.0.id", 5.0)
	// nothing new
	k.widget("GET events?after=7", "").want(200).says("more", false).says("next", 7.0)
	k.widget("GET events?after=8", "").wantError(400, "invalid_request", "8", "beyond")
}

func TestALeadIsStored(t *testing.T) {
	k := setUp(t)
	id := k.widget("POST leads", `{"email":"ann@example.org","name":"Ann","phone":"+49 30 1","note":"call\nme"}`).want(201).text("id")
	if !strings.HasPrefix(id, "led_") || k.rows("leads WHERE email = 'ann@example.org' AND note = 'call'||char(10)||'me'") != 1 {
		t.Errorf("lead %q is not there", id)
	}
	k.widget("POST leads", `{"email":"bob@example.org","name":null}`).want(201)
}

func TestACouponTakesOffWhatItSays(t *testing.T) {
	k := setUp(t)
	k.sync("PUT coupons", `{"items":[{"code":"save15","percent":15},{"code":"FIVE","amount":500,"currency":"EUR"}]}`).want(200)
	for _, c := range []struct {
		body     string
		discount any
	}{
		{`{"code":"SAVE15","total":1999}`, 299.0}, // 299.85: fractions are dropped
		{`{"code":"Save15","total":0}`, 0.0},
		{`{"code":"SAVE15","total":1000000000000}`, 150000000000.0},
		{`{"code":"FIVE","total":2000}`, 500.0},
		{`{"code":"FIVE","total":300}`, 300.0}, // never below zero
		{`{"code":"FIVE"}`, nil},
	} {
		k.widget("POST coupon/apply", c.body).want(200).says("discount", c.discount)
	}
	k.widget("POST coupon/apply", `{"code":"save15"}`).says("percent", 15.0).says("code", "SAVE15")
	k.widget("POST coupon/apply", `{"code":"five"}`).says("amount", 500.0).says("currency", "EUR")
	k.widget("POST coupon/apply", `{"code":"NONE"}`).wantError(404, "not_found", "NONE")
}

// A session sees only its own conversations, and a workspace only its own rows.
func TestNothingLeaksToOtherSessionsOrWorkspaces(t *testing.T) {
	k := setUp(t)
	foreignToken := k.synchroniser("acme")
	k.sync("PUT documents", `{"items":[{"id":"a","title":"Secret","url":"https://example.org","text":"demo's"}]}`).want(200)
	k.sync("PUT coupons", `{"items":[{"code":"DEMO","percent":10}]}`).want(200)
	said := k.widget("POST messages", `{"text":"my secret"}`).want(201)
	mine, message := said.text("message.conversation_id"), said.text("message.id")

	for name, stranger := range map[string]string{"same workspace": k.visitor("demo"), "other workspace": k.visitor("acme")} {
		t.Run(name, func(t *testing.T) {
			k := k.in(t)
			unknown := "cnv_AAAAAAAAAAAAAAAAAAAAAAAAAA"
			for _, c := range []struct{ target, body string }{
				{"GET /api/v1/widget/conversations/ID", ""},
				{"POST /api/v1/widget/conversations/ID/close", ""},
				{"POST /api/v1/widget/messages", `{"text":"x","conversation_id":"ID"}`},
				{"POST /api/v1/widget/events", `{"type":"x","conversation_id":"ID"}`},
				{"GET /api/v1/widget/events?conversation_id=ID", ""},
				{"POST /api/v1/widget/typing", `{"typing":true,"conversation_id":"ID"}`},
				{"POST /api/v1/widget/satisfaction", `{"score":1,"conversation_id":"ID"}`},
			} {
				of := func(id string) reply {
					return k.send(strings.ReplaceAll(c.target, "ID", id), stranger, strings.ReplaceAll(c.body, "ID", id))
				}
				got := of(mine).wantError(404, "not_found", mine)
				never := of(unknown).wantError(404, "not_found", unknown)
				if a, b := strings.ReplaceAll(string(got.body), mine, unknown), string(never.body); a != b {
					t.Errorf("%s tells another's conversation from none: %s, %s", c.target, a, b)
				}
			}
			k.send("GET /api/v1/widget/conversations?after="+mine, stranger, "").wantError(400, "invalid_request", mine)
			own := k.send("GET /api/v1/widget/conversations", stranger, "").text("items.0.id")
			k.send("GET /api/v1/widget/conversations/"+own+"?after="+message, stranger, "").wantError(400, "invalid_request", message)
		})
	}
	k.send("POST /api/v1/widget/coupon/apply", k.visitor("acme"), `{"code":"DEMO"}`).wantError(404, "not_found")
	k.send("GET /v1/wp/documents", foreignToken, "").want(200).says("next", nil)
	k.send("DELETE /v1/wp/documents", foreignToken, `{"items":[{"id":"a"}]}`).want(200).says("deleted", 0.0)
	k.send("PUT /v1/wp/documents", foreignToken, `{"items":[{"id":"a","title":"T","url":"https://example.com","text":""}]}`).want(200).says("created", 1.0)
	k.send("GET /v1/wp/status", foreignToken, "").want(200).says("workspace", "acme").says("documents", 1.0).says("coupons", 0.0)
	k.sync("GET documents", "").want(200).says("items.0.text", "demo's")
}
