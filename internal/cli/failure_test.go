package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

func TestAFailureIsPrintedWithItsHintAndLeadsToAStatus(t *testing.T) {
	cmd := &cobra.Command{Use: "prog"}
	for _, row := range []struct {
		err  error
		want string
		exit int
	}{
		{Fail(errors.New("it is down"), ""), "error: it is down\n", Failed},
		{fmt.Errorf("start: %w", Fail(errors.New("it is down"), "start it")), "error: start: it is down\nhint: start it\n", Failed},
		{UsageError("give one", "%q: want %s", "x", "a number"), "error: \"x\": want a number\nhint: give one\n", Misused},
		{Fail(ErrReported, ""), "", Failed},
		{errors.New("unknown flag: --x"), "error: unknown flag: --x\nhint: see 'prog --help'\n", Misused},
	} {
		var out bytes.Buffer
		if exit := Report(&out, cmd, row.err); exit != row.exit || out.String() != row.want {
			t.Errorf("%v: status %d, %q; want %d, %q", row.err, exit, out.String(), row.exit, row.want)
		}
	}
}

func TestACommandChecksItsArguments(t *testing.T) {
	cmd := &cobra.Command{Use: "run A B"}
	for want, args := range map[string][]string{
		"":                             {"a", "b"},
		"run: A and B are missing":     nil,
		"run: B is missing":            {"a"},
		`run: unexpected argument "c"`: {"a", "b", "c"},
	} {
		t.Run(want, func(t *testing.T) {
			got := ""
			if err := Arguments("A", "B")(cmd, args); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%q: %q, want %q", args, got, want)
			}
		})
	}
}

func TestJSONForATerminalMovesNoCursor(t *testing.T) {
	var out bytes.Buffer
	if err := WriteSafeJSON(&out, map[string]string{"name": "a\u009b2J\u202eb<é"}); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"name\": \"a\\u009b2J\\u202eb<é\"\n}\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
