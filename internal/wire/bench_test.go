package wire

import (
	"io"
	"strings"
	"testing"
)

// usualHead is what a browser's script sends, more or less: 8 fields, 400 bytes.
const usualHead = "POST /api/v1/widget/messages?session=5f2c HTTP/1.1\r\n" +
	"Host: api.example.com\r\n" +
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
	"Accept: application/json, text/plain;q=0.9, */*;q=0.8\r\n" +
	"Accept-Language: en-GB,en;q=0.7\r\n" +
	"Origin: https://shop.example.com\r\n" +
	"Authorization: Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiI3In0.c2lnbmF0dXJl\r\n" +
	"Content-Type: application/json\r\n" +
	"Content-Length: 42\r\n\r\n"

const usualAnswer = "HTTP/1.1 200 OK\r\nDate: Sun, 22 Nov 2026 10:00:00 GMT\r\nContent-Type: application/json\r\n" +
	"Content-Length: 64\r\nConnection: keep-alive\r\nCache-Control: no-store\r\n\r\n"

func BenchmarkRequestParse(b *testing.B) {
	var r Request
	b.ReportAllocs()
	b.SetBytes(int64(len(usualHead)))
	for b.Loop() {
		if err := r.Parse(usualHead); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResponseParse(b *testing.B) {
	var r Response
	b.ReportAllocs()
	b.SetBytes(int64(len(usualAnswer)))
	for b.Loop() {
		if err := r.Parse(usualAnswer, "GET"); err != nil {
			b.Fatal(err)
		}
	}
}

// endless says the same for ever.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func BenchmarkHead(b *testing.B) {
	var r Reader
	r.Reset(&endless{text: usualHead})
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Fill(64 << 10); err != nil {
			b.Fatal(err)
		}
		if r.Head() == "" {
			b.Fatal("no head")
		}
	}
}

func BenchmarkChunkedBody(b *testing.B) {
	var r Reader
	var body Body
	chunk := "2000\r\n" + strings.Repeat("x", 8<<10) + "\r\n"
	text := strings.Repeat(chunk, 128) + "0\r\n\r\n"
	r.Reset(&endless{text: text})
	p := make([]byte, 32<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		body.Reset(&r, Chunked)
		for {
			_, err := body.Read(p)
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
