package sample

import (
	"strings"
	"testing"
)

// The first question to a new server has an answer, and a deleted document is not restored.
func TestAFirstQuestionIsAnsweredAndNothingThatWasDeletedComesBack(t *testing.T) {
	k := setUpWith(t, Options{Welcome: true})
	ask := func(question, want string) {
		t.Helper()
		said := k.send("POST /api/v1/widget/messages", k.session, `{"text":"`+question+`"}`).want(201)
		if !strings.Contains(string(said.body), want) {
			t.Errorf("%q was answered %s, want %q in it", question, said.body, want)
		}
	}
	ask("How many messages may I send?", "300 requests a minute")
	ask("When is my refund there?", "five working days")
	ask("What does 429 mean?", "Retry-After")
	ask("how long does shipping take", "two to four days")
	ask("How do I add my own documents?", "PUT /v1/wp/documents")
	ask("Who won the chess championship?", "nothing about that")
	k.send("POST /api/v1/widget/coupon/apply", k.session, `{"code":"welcome10","total":5000}`).want(200)

	k.send("DELETE /v1/wp/documents", k.token, `{"items":[{"id":"returns"}]}`).want(200)
	if err := k.b.Close(); err != nil {
		t.Fatal(err)
	}
	k.b = k.open(Options{Dir: k.dir, Welcome: true})
	ask("When is my refund there?", "nothing about that")
	ask("how long does shipping take", "two to four days")
}

// A workspace that an operator created gets no documents.
func TestOnlyTheFirstWorkspaceIsGivenDocuments(t *testing.T) {
	k := setUpWith(t, Options{Welcome: true})
	other := k.synchroniser("shop")
	if n := string(k.send("GET /v1/wp/status", other, "").want(200).body); !strings.Contains(n, `"documents":0`) {
		t.Errorf("a workspace of its own begins with documents: %s", n)
	}
}
