package denial

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// A denial id holds the value of a field, which may be a secret, sealed: only a holder of the
// server's secret can read it. It names the very caller.
func TestTheValueOfAFieldIsSealed(t *testing.T) {
	const key = "sk_live_27ab"
	w := newWorld(t, "2 per minute by header:X-Api-Key or ip")
	caller := callerIs{"header:X-Api-Key": key, "ip": "\xc0\x00\x02\x07"}
	var scratch weir.Scratch
	d := w.refuse(caller, &scratch)
	id := w.sealer().ID(d, caller, &scratch)
	raw, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(id+string(raw), key) || strings.Contains(id, base64.RawURLEncoding.EncodeToString([]byte(key))) {
		t.Errorf("the id %s has the value in clear", id)
	}
	f := w.open(w.sealer(), id)
	if value, ok := f.Keys().AppendKey(nil, "header:X-Api-Key"); !ok || string(value) != key || len(f.Callers) != 1 {
		t.Errorf("the id names %q, %v", value, ok)
	}
	w.secret = []byte(strings.Repeat("another secret", 3))[:32]
	if _, err := w.sealer().Open(id); err == nil {
		t.Error("another server opens the id")
	}
}
