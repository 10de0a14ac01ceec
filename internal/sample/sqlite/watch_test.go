package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// A listener is called after the commit, for every event and in order, so that it can read the
// event.
func TestAListenerIsToldOfWhatItCanRead(t *testing.T) {
	d, s := visited(t, Options{})
	var heard []string
	d.Listen(func(conversation string, n int64) {
		_, events, _, err := d.Events(context.Background(), s.ID, conversation, n-1, 1)
		if err != nil || len(events) != 1 || events[0].N != n {
			t.Errorf("notified of event %d of %s, which cannot be read: %v, %v", n, conversation, events, err)
		}
		heard = append(heard, fmt.Sprint(conversation, "/", n))
	})
	said := []Message{{ID: "msg_1", Author: Visitor, Created: noon}, {ID: "msg_2", Author: Assistant, Created: noon}}
	if _, err := d.AddMessages(t.Context(), s.ID, "", said...); err != nil {
		t.Fatal(err)
	}
	if err := d.StartConversation(t.Context(), s.ID, "cnv_2", noon); err != nil {
		t.Fatal(err)
	}
	if _, err := d.AddFirstWorkspace(t.Context(), "demo", noon); err != nil { // not in any feed
		t.Fatal(err)
	}
	if _, _, err := d.Report(t.Context(), s.ID, "cnv_1", Event{Source: FromVisitor, Type: "x", Created: noon}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"cnv_1/2", "cnv_1/3", "cnv_2/1", "cnv_1/4"}; !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

// The numbers of a rolled back transaction are reused. A listener that knew them would take the
// later events for old ones, so it gets 0.
func TestAListenerIsToldNoNumberOfWhatWasRolledBack(t *testing.T) {
	d, s := visited(t, Options{})
	var heard []string
	d.Listen(func(conversation string, n int64) { heard = append(heard, fmt.Sprint(conversation, "/", n)) })
	event := Event{Source: FromVisitor, Type: "x", Created: noon}
	full := errors.New("no room")
	err := d.visit(t.Context(), s.ID, func(v *visit) error {
		c, err := findOpen(t.Context(), v.Tx, s.ID, "")
		if err != nil {
			return err
		}
		if _, err := d.appendEvent(t.Context(), v, c.n, event); err != nil {
			return err
		}
		return full
	})
	if !errors.Is(err, full) {
		t.Fatal(err)
	}
	if _, n, err := d.Report(t.Context(), s.ID, "", event); err != nil || n != 2 {
		t.Fatalf("event %d, %v; want 2", n, err)
	}
	if want := []string{"cnv_1/0", "cnv_1/2"}; !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

func TestAVersionChangesWithOtherProcessesCommitsAlone(t *testing.T) {
	d, s := visited(t, Options{})
	other := opened(t, d.path, Options{})
	version := func() Version {
		t.Helper()
		v, err := d.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	report := func(d *DB) {
		t.Helper()
		if _, _, err := d.Report(t.Context(), s.ID, "", Event{Source: FromVisitor, Type: "x", Created: noon}); err != nil {
			t.Fatal(err)
		}
	}
	before := version()
	if before == (Version{}) {
		t.Error("a version that was read is the zero one")
	}
	report(d)
	if v := version(); v != before {
		t.Error("a commit of one's own changes the version")
	}
	report(other)
	after := version()
	if after == before {
		t.Error("another's commit does not change the version")
	}
	if v := version(); v != after {
		t.Error("the version changes by being read")
	}
	report(d)
	report(other)
	report(d)
	if v := version(); v == after {
		t.Error("another's commit between two of one's own does not change the version")
	}
}

func TestTheNewestEventsOfManyConversationsAreReadAtOnce(t *testing.T) {
	d, s := visited(t, Options{})
	for i := 2; i <= 40; i++ {
		if err := d.StartConversation(t.Context(), s.ID, fmt.Sprint("cnv_", i), noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := d.Report(t.Context(), s.ID, "cnv_7", Event{Source: FromVisitor, Type: "x", Created: noon}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	note := func(conversation string, n int64) { got[conversation] = n }
	if err := d.Newest(t.Context(), []string{"cnv_7", "nothing", `"'`, "cnv_40"}, note); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["cnv_7"] != 2 || got["cnv_40"] != 1 {
		t.Errorf("the newest events are %v, want 2 of cnv_7 and 1 of cnv_40", got)
	}
}
