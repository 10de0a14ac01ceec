package accesslog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzParse passes any line to every parser. No parser may panic, change a line that it rejects
// (the original is shown), or return another result for the same line.
func FuzzParse(f *testing.F) {
	all := formats
	for _, text := range []string{
		`$remote_addr - $remote_user [$time_local] "$request" $status $uri$is_args$args "$http_user_agent" $request_time`,
		`escape=none "$http_user_agent" $host$request_uri $request_method $msec`,
		`escape=json {"t":"$time_iso8601","r":"$request","s":$status,"f":"$http_x_forwarded_for"}`,
	} {
		one, err := templateFormat(text)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all[:len(all):len(all)], one)
	}
	for _, format := range formats {
		text, err := os.ReadFile(filepath.Join("testdata", format.name+".log"))
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	f.Add([]byte(`192.0.2.1 - - [01/Mar/2026:12:00:00 +0000] "GET http://a?b HTTP/1.1" 200 /a?b "x\x22" 0.1`))
	f.Add([]byte(`"a" b" example.com/a?b GET 1.000`))
	f.Add([]byte(`{"t":"2026-03-01T12:00:00+00:00","r":"GET /\u00e4\ud83d\ude00\ud83d HTTP/1.1","s":200,"f":"-"}`))
	fields := []string{"status", "request.headers.User-Agent.0", "http_x_forwarded_for", "a.b"}
	parsers := make([]parser, len(all))
	for i := range all {
		parsers[i] = all[i].open(fields)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for i, p := range parsers {
			var first, second record
			first.ready(len(fields))
			second.ready(len(fields))
			text := bytes.Clone(line)
			if err := p.parse(text, &first); err != nil {
				if !bytes.Equal(text, line) {
					t.Fatalf("%s refuses %q with %v and leaves %q", all[i].name, line, err, text)
				}
				continue
			}
			if first.Status < 0 || first.Status > 999 || (first.Method == nil) != (first.Target == nil) || first.Method != nil && len(first.Target) == 0 {
				t.Fatalf("%s reads %q as %+v", all[i].name, line, first.Line)
			}
			if err := p.parse(bytes.Clone(line), &second); err != nil {
				t.Fatalf("%s refuses %q the second time: %v", all[i].name, line, err)
			}
			if first.Time != second.Time || first.Status != second.Status {
				t.Fatalf("%s reads %q at %d, then at %d", all[i].name, line, first.Time, second.Time)
			}
			if n := first.length(); n > 16*len(line)+16 {
				t.Fatalf("%s makes %d bytes of %d", all[i].name, n, len(line))
			}
			before := values(&first)
			first.move(make([]byte, first.length()))
			if after := values(&first); before != after || after != values(&second) {
				t.Fatalf("%s reads %q as %q, moved as %q, then as %q", all[i].name, line, before, after, values(&second))
			}
		}
	})
}

// values returns all values of a record's line.
func values(r *record) string {
	var all bytes.Buffer
	r.values(func(value *[]byte) {
		all.Write(*value)
		all.WriteByte(0)
	})
	return all.String()
}
