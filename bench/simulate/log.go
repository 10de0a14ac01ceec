package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// A log is that of a busy site, 115 requests a second, in combined format: ten million lines are a
// day. It is the same each time it is made.
type log struct {
	lines   int64
	callers int64 // the number of callers; if it equals lines, each line is another caller's
}

func (l log) name() string { return fmt.Sprintf("%d-%d.log", l.lines, l.callers) }

// requests are the requests, in the mix of the contract's widget.
var (
	requests = []string{
		"POST /api/v1/widget/messages", "POST /api/v1/widget/messages", "GET /api/v1/widget/events?after=1712", "GET /api/v1/widget/conversations/8f14e45f",
		"POST /api/v1/widget/typing", "POST /api/v1/widget/typing", "POST /api/v1/widget/init", "GET /v1/wp/status", "GET /assets/app.3f9a.js", "GET /products/blue-jumper?size=m&ref=newsletter",
	}
	agents = []string{
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
		"Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
		"curl/8.5.0",
	}
)

// write writes the log. The first callers send much more than the last, unless each line is another
// caller's.
func (l log) write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w := bufio.NewWriterSize(file, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 20, uint64(l.callers-1))
	begin := time.Date(2027, 1, 15, 0, 0, 0, 0, time.UTC)
	var line []byte
	for n := range l.lines {
		caller := uint64(n)
		switch {
		case n%20_000 < 2000 && n%2 == 0:
			caller = 0 // a program that sends far too often, for some seconds of each three minutes
		case l.callers < l.lines:
			caller = zipf.Uint64()
		}
		line = address(line[:0], caller)
		line = append(line, " - - ["...)
		line = begin.Add(time.Duration(n/115)*time.Second).AppendFormat(line, "02/Jan/2006:15:04:05 -0700")
		line = append(line, "] \""...)
		line = append(line, requests[random.IntN(len(requests))]...)
		line = append(line, " HTTP/1.1\" 200 "...)
		line = strconv.AppendInt(line, random.Int64N(20_000), 10)
		line = append(line, " \"https://shop.example.com/\" \""...)
		line = append(line, agents[caller%uint64(len(agents))]...)
		line = append(line, "\"\n"...)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// address appends a caller's address: one in eight is IPv6.
func address(b []byte, caller uint64) []byte {
	mixed := caller * 0x9e3779b1 & 0xffffff // unique for 16 million callers
	if caller%8 == 7 {
		return fmt.Appendf(b, "2001:db8:%x:%x::%x", mixed>>16, mixed&0xffff, caller%251)
	}
	return fmt.Appendf(b, "10.%d.%d.%d", mixed>>16, mixed>>8&0xff, mixed&0xff)
}
