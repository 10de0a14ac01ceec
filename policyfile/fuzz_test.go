package policyfile_test

import (
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/policyfile"
)

func FuzzParse(f *testing.F) {
	for _, folder := range []string{"testdata/good", "testdata/bad"} {
		for _, path := range files(f, folder, 8) {
			source, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			if len(source) < 4<<10 { // longer ones only slow the search
				f.Add(source)
			}
		}
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		file, err := policyfile.Parse("fuzz.yaml", source)
		if err != nil {
			var invalid *policyfile.Error
			if !errors.As(err, &invalid) || len(invalid.Problems) == 0 || len(invalid.Problems) > policyfile.MaxProblems+1 {
				t.Fatalf("refused without its problems: %v", err)
			}
			for _, p := range invalid.Problems {
				if p.Message == "" || p.Line < 0 || p.Line > 0 && p.Column < 1 {
					t.Fatalf("a problem without a place: %+v", p)
				}
			}
			return
		}
		if problems := file.Policy.Problems(identity.Sources()); len(problems) > 0 {
			t.Fatalf("accepted, but no policy: %v", problems)
		}
		written := policyfile.Marshal(file.Policy)
		again, err := policyfile.Parse("again.yaml", written)
		if err != nil {
			t.Fatalf("accepted, written, and refused: %v\n%s", err, written)
		}
		if !reflect.DeepEqual(again.Policy, file.Policy) {
			t.Fatalf("accepted, written, and another policy:\n%+v\n%+v\n%s", file.Policy, again.Policy, written)
		}
	})
}
