package engines

import (
	"fmt"
	"strings"
)

// A reply is the upstream's response to requests whose path ends with the reply's
// name.
type reply struct {
	before string // 1xx answers
	status string // empty: 200 OK
	fields string // lines; empty: the body has a Content-Length
	body   string
	early  bool // it does not wait for the request's body
	ends   bool // the end of the connection ends the body
	cut    bool // the body is incomplete
}

// wellBehaved are the answers of a correct upstream.
var wellBehaved = map[string]reply{
	"":            answers[""],
	"204":         answers["204"],
	"304":         answers["304"],
	"404":         answers["404"],
	"chunked":     answers["chunked"],
	"until-close": answers["until-close"],
	"close":       answers["close"],
}

var answers = map[string]reply{
	"":            {body: "well\n"},
	"204":         {status: "204 No Content", fields: "X-Empty: yes\r\n"},
	"304":         {status: "304 Not Modified", fields: "ETag: \"one\"\r\n"},
	"304-length":  {status: "304 Not Modified", fields: "ETag: \"one\"\r\nContent-Length: 5\r\n"},
	"404":         {status: "404 Not Found", body: "not here\n"},
	"500":         {status: "500 Internal Server Error", body: "broken\n"},
	"599":         {status: "599 Odd", body: "odd\n"},
	"empty":       {fields: "Content-Length: 0\r\n"},
	"chunked":     {fields: "Transfer-Encoding: chunked\r\n", body: "2\r\nwe\r\n3;x=y\r\nll\n\r\n0\r\n\r\n"},
	"trailers":    {fields: "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n", body: "5\r\nwell\n\r\n0\r\nX-Sum: 17\r\n\r\n"},
	"until-close": {fields: "Connection: close\r\n", body: "well\n", ends: true},
	"close":       {fields: "Content-Length: 5\r\nConnection: close\r\n", body: "well\n", ends: true},
	"keep-alive":  {fields: "Content-Length: 5\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n", body: "well\n"},
	"hop":         {fields: "Content-Length: 5\r\nConnection: X-Mine\r\nX-Mine: 1\r\nX-Yours: 2\r\nProxy-Authenticate: x\r\n", body: "well\n"},
	"103":         {before: "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n", body: "well\n"},
	"102-twice":   {before: "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n", body: "well\n"},
	"cookies":     {fields: "Content-Length: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n", body: "well\n"},
	"limits":      {fields: "Content-Length: 5\r\nX-RateLimit-Limit: 9\r\nx-ratelimit-remaining: 9\r\nRetry-After: 9\r\n", body: "well\n"},
	"429":         {status: "429 Too Many Requests", fields: "Content-Length: 5\r\nRetry-After: 9\r\n", body: "busy\n"},
	"typeless":    {fields: "Content-Length: 14\r\n", body: "<html>\n</html>"},
	"dated":       {fields: "Content-Length: 5\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n", body: "well\n"},
	"early":       {body: "early\n", early: true},

	"websocket": {status: "101 Switching Protocols", fields: "Connection: Upgrade\r\nUpgrade: websocket\r\n", ends: true},

	"nothing":     {status: "-", ends: true},
	"half":        {fields: "Content-Length: 100\r\n", body: "half", ends: true, cut: true},
	"half-chunks": {fields: "Transfer-Encoding: chunked\r\n", body: "5\r\nwell\n\r\n5\r\nwe", ends: true, cut: true},
	"two-lengths": {fields: "Content-Length: 5\r\nContent-Length: 3\r\n", body: "well\n", ends: true},
	"same-length": {fields: "Content-Length: 5\r\nContent-Length: 5\r\n", body: "well\n"},
	"both":        {fields: "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", body: "5\r\nwell\n\r\n0\r\n\r\n", ends: true},
	"gzip":        {fields: "Transfer-Encoding: gzip\r\n", body: "well\n", ends: true},
	"folded":      {fields: "X-Folded: a\r\n b\r\nContent-Length: 5\r\n", body: "well\n", ends: true},
	"bare-lf":     {fields: "X-A: b\nX-C: d\r\nContent-Length: 5\r\n", body: "well\n", ends: true},
	"bare-cr":     {fields: "X-A: b\rX-C: d\r\nContent-Length: 5\r\n", body: "well\n", ends: true},
	"nul":         {fields: "X-A: b\x00c\r\nContent-Length: 5\r\n", body: "well\n", ends: true},
	"blank-name":  {fields: "X-A : b\r\nContent-Length: 5\r\n", body: "well\n", ends: true},
	"bad-length":  {fields: "Content-Length: +5\r\n", body: "well\n", ends: true},
	"bad-chunk":   {fields: "Transfer-Encoding: chunked\r\n", body: "5\r\nwell\n\r\nzz\r\n", ends: true, cut: true},
	"http2":       {status: "HTTP/2.0 200 OK", body: "well\n", ends: true},
	"more":        {fields: "Content-Length: 5\r\n", body: "well\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-Poison: yes\r\n\r\npoison\n"},
	"204-body":    {status: "204 No Content", fields: "X-Empty: yes\r\n", body: "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-Poison: yes\r\n\r\npoison\n"},
	"unasked":     {status: "101 Switching Protocols", fields: "Connection: Upgrade\r\nUpgrade: websocket\r\n", ends: true},
}

// text returns the bytes of the answer to a request, which contain the request's target.
func (a reply) text(method, target string) string {
	status, body := a.status, a.body
	switch {
	case status == "-":
		return ""
	case status == "":
		status = "HTTP/1.1 200 OK"
	case !strings.HasPrefix(status, "HTTP/"):
		status = "HTTP/1.1 " + status
	}
	fields := a.fields
	if fields == "" {
		fields = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	if method == "HEAD" {
		body = ""
	}
	return a.before + status + "\r\nX-Saw: " + method + " " + target + "\r\n" + fields + "\r\n" + body
}
