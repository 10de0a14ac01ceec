package check

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/weirlimit/weir/answer"
)

// nginx keeps of an answer that is neither 2xx nor 401 nor 403 not even the status, and of these
// three no body. So the door answers it 403, with the refusal in a field, and nginx brings that
// field to answerPath to get the refusal as it is. The field is authenticated: if a client could
// choose it, it would choose a page.

// sealedField is the field with a sealed refusal, in net/http's spelling.
const sealedField = "X-Weir-Answer"

const (
	macSize   = 16
	minSecret = 16
)

// seal returns a refusal as the value of a field; empty while the key is not known.
func (d *Door) seal(status int, fields []answer.Field, body []byte) string {
	key := d.options.Secret()
	if len(key) < minSecret {
		return ""
	}
	b := make([]byte, macSize, 1<<10)
	b = binary.AppendUvarint(b, uint64(status))
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for _, f := range fields {
		b = appendText(appendText(b, f.Name), f.Value)
	}
	b = append(b, body...)
	copy(b, sum(key, b[macSize:]))
	return base64.RawURLEncoding.EncodeToString(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func sum(key, b []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	return mac.Sum(nil)[:macSize]
}

// open returns what seal was given. ok is false for anything else.
func (d *Door) open(sealed string) (status int, fields []answer.Field, body []byte, ok bool) {
	key := d.options.Secret()
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(b) < macSize || len(key) < minSecret || !hmac.Equal(b[:macSize], sum(key, b[macSize:])) {
		return 0, nil, nil, false
	}
	// authentic: seal wrote it, so its lengths fit
	r := sealedReader{b[macSize:]}
	status = int(r.number())
	for range r.number() {
		fields = append(fields, answer.Field{Name: r.text(), Value: r.text()})
	}
	return status, fields, r.rest, true
}

type sealedReader struct{ rest []byte }

func (r *sealedReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	r.rest = r.rest[size:]
	return n
}

func (r *sealedReader) text() string {
	n := r.number()
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}
