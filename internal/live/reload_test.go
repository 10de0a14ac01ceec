package live_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/live"
	"github.com/weirlimit/weir/policyfile"
)

func TestReloadDoesNotWaitForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		f.replace(text(2))
		if err := f.Reload(t.Context(), "SIGHUP"); err != nil {
			t.Fatal(err)
		}
		f.want(2, live.File, 1)
		if s := f.State(); s.By != "SIGHUP" {
			t.Errorf("by %q", s.By)
		}
		looks(20)
		f.want(2, live.File, 1) // the watch does not decide it again
		if err := f.Reload(t.Context(), "SIGHUP"); err != nil {
			t.Fatal(err)
		}
		f.want(2, live.File, 1)

		f.replace("limiters: []\n")
		var invalid *policyfile.Error
		if err := f.Reload(t.Context(), "SIGHUP"); !errors.As(err, &invalid) || len(invalid.Problems) != 1 {
			t.Errorf("%v", err)
		}
		f.want(2, live.File, 1)
		ended, end := context.WithCancel(t.Context())
		end()
		_ = f.Reload(ended, "SIGHUP") // may or may not get its turn; it must not hang
	})
}

func TestAPostedPolicyHoldsUntilTheFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		if err := f.Post(t.Context(), live.Author{By: "token ops"}, []byte(text(7))); err != nil {
			t.Fatal(err)
		}
		f.want(7, live.Posted, 1)
		if s := f.State(); s.By != "token ops" || !s.Since.Equal(time.Now()) {
			t.Errorf("%+v", s)
		}
		f.replace(text(1)) // unchanged
		looks(20)
		f.want(7, live.Posted, 1)
		f.replace("limiters: []\n") // rejected: the posted policy stays in force
		looks(3)
		f.want(7, live.Posted, 1)
		f.replace(text(2))
		looks(3)
		f.want(2, live.File, 2)

		if err := f.Post(t.Context(), live.Author{By: "token ops"}, []byte(text(8))); err != nil {
			t.Fatal(err)
		}
		if err := f.Reload(t.Context(), "SIGHUP"); err != nil {
			t.Fatal(err)
		}
		f.want(2, live.File, 4)
	})
}

func TestAPostedPolicyThatIsBadOrHugeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, nil)
		for _, body := range []string{"", "limiters: []", "\x00\xff", text(0), strings.Repeat("# ten million bytes\n", 1<<19)} {
			var invalid *policyfile.Error
			if err := f.Post(t.Context(), live.Author{By: "token ops"}, []byte(body)); !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
				t.Errorf("%.20q: %v", body, err)
			}
			f.want(1, live.File, 0)
			if s := f.State(); s.Last.OK || s.Last.By != "token ops" {
				t.Errorf("%.20q: %+v", body, s.Last)
			}
		}
	})
}

func TestWhatTheStoreCannotCountIsRefusedAtItsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inForce(t, func(o *live.Options) {
			o.Check = func(p weir.Policy) error {
				for _, l := range p.Limiters {
					if l.Name == "split" {
						return errors.New("a cluster cannot count it")
					}
				}
				return nil
			}
		})
		f.replace(text(2) + "  - name: split\n    windows: [1 per minute by ip]\n")
		looks(3)
		f.want(1, live.File, 0)
		if last := f.State().Last; last.OK || len(last.Problems) != 1 || last.Problems[0].Line != 5 || last.Problems[0].Message != "a cluster cannot count it" {
			t.Errorf("%+v", last)
		}
	})
}

func TestAPolicyFromNoFileIsNeverReadAgain(t *testing.T) {
	for _, source := range []string{live.Contract, live.Stream} {
		start, err := live.Parse(policyfile.Reader{}, source, "here", []byte(text(1)))
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{t: t}
		p, err := live.New(start, f.swap, live.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.Reload(t.Context(), "SIGHUP"); !errors.Is(err, live.ErrFixed) {
				t.Errorf("%s: %v", source, err)
			}
			if err := p.Post(t.Context(), live.Author{By: "token ops"}, []byte(text(2))); err != nil {
				t.Errorf("%s: %v", source, err)
			}
		}
		if s := p.State(); s.Source != live.Posted || s.Path != "" {
			t.Errorf("%s: %+v", source, s)
		}
	}
}

func TestTheCandidateHasAFileOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var evaluated []int64
		path := filepath.Join(t.TempDir(), "candidate.yaml")
		f := inForce(t, func(o *live.Options) {
			o.Candidate = path
			o.Evaluate = func(p *weir.Policy) error {
				evaluated = append(evaluated, p.Limiters[0].Windows[0].Limit)
				return nil
			}
		})
		if s, ok := f.Candidate(); !ok || s.Last.OK || s.Source != "" || s.Path != path || len(evaluated) != 0 {
			t.Fatalf("no file yet: %+v, %v", s, ok)
		}
		f.write(path, text(5))
		looks(3)
		if s, _ := f.Candidate(); !s.Last.OK || s.Source != live.File || fmt.Sprint(evaluated) != "[5]" {
			t.Fatalf("%+v, %v", s, evaluated)
		}
		f.write(path, "limiters: []\n")
		if err := f.Reload(t.Context(), "SIGHUP"); err == nil {
			t.Error("a bad candidate is no error")
		}
		if s, _ := f.Candidate(); s.Last.OK || s.Policy.Limiters[0].Windows[0].Limit != 5 {
			t.Errorf("%+v", s)
		}
		f.write(path, text(6))
		if err := f.Reload(t.Context(), "SIGHUP"); err != nil || fmt.Sprint(evaluated) != "[5 6]" {
			t.Errorf("%v, %v", err, evaluated)
		}
		f.want(1, live.File, 0)
	})
}
