package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// serveChild runs one of the benchmark's programs until it is stopped. args are the address to
// listen on and what the program needs.
func serveChild(name string, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("serve %s: it needs an address and more: %q", name, args)
	}
	if answer, ok := smallAnswers[name]; ok {
		return answerSmall(args[0], []byte(answer))
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	if name == "bodies" {
		return serveBodies(l, args[1])
	}
	if len(args) != 5 {
		return fmt.Errorf("serve %s: it needs an address, an upstream, a limit, a certificate and its key: %q", name, args)
	}
	limit, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	upstream, cert, key := args[1], args[3], args[4]
	switch name {
	case "floor":
		return passUnread(l, upstream)
	case "fasthttp":
		return serveFasthttp(l, upstream, limit, cert, key)
	case "proxy":
		return serveProxy(l, upstream, cert, key)
	}
	return fmt.Errorf("serve %q: no such contestant", name)
}

// passUnread is the floor: each connection has its own upstream connection, and bytes from one are
// written to the other. In the small cases a request or an answer is a single read, so nothing else
// is needed.
func passUnread(l net.Listener, upstream string) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", upstream)
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			defer server.Close()
			buf := make([]byte, 16<<10)
			for {
				n, err := client.Read(buf)
				if err != nil {
					return
				}
				if n == len(buf) || bytes.HasPrefix(buf[:n], []byte("POST ")) || bytes.HasPrefix(buf[:n], []byte("GET "+largePath)) {
					server.Write(buf[:n])
					passBoth(client, server)
					return
				}
				if _, err = server.Write(buf[:n]); err != nil {
					return
				}
				if n, err = server.Read(buf); err != nil {
					return
				}
				if _, err = client.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// passBoth passes bodies on, by splice if the kernel supports it.
func passBoth(client, server net.Conn) {
	done := make(chan struct{})
	go func() {
		io.Copy(server, client)
		server.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	io.Copy(client, server)
	client.Close()
	<-done
}

// serveFasthttp is the minimal limiter on fasthttp: a counter by address, three fields, and its own
// client.
func serveFasthttp(l net.Listener, upstream string, limit int64, cert, key string) error {
	back := &fasthttp.HostClient{Addr: upstream, MaxConns: 1024, ReadBufferSize: 16 << 10, StreamResponseBody: true}
	var counters sync.Map // by address
	fields := func(h *fasthttp.ResponseHeader, n int64) {
		h.Set("X-RateLimit-Limit", strconv.FormatInt(limit, 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(max(0, limit-n), 10))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+60, 10))
	}
	server := &fasthttp.Server{
		StreamRequestBody: true, MaxRequestBodySize: 1 << 30, ReadBufferSize: 16 << 10,
		Handler: func(ctx *fasthttp.RequestCtx) {
			counter, ok := counters.Load(ctx.RemoteIP().String())
			if !ok {
				counter, _ = counters.LoadOrStore(ctx.RemoteIP().String(), new(atomic.Int64))
			}
			n := counter.(*atomic.Int64).Add(1)
			if n > limit {
				ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
				ctx.SetBodyString("too many requests\n")
				fields(&ctx.Response.Header, n)
				return
			}
			ctx.Request.Header.Del("Connection")
			if cert != "" {
				// otherwise the client would use TLS to the upstream too
				ctx.Request.URI().SetScheme("http")
			}
			if err := back.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error(err.Error(), fasthttp.StatusBadGateway)
				return
			}
			ctx.Response.Header.Del("Connection")
			fields(&ctx.Response.Header, n)
		},
	}
	if cert != "" {
		return server.ServeTLS(l, cert, key)
	}
	return server.Serve(l)
}

// serveProxy is net/http's ReverseProxy: no limiter, a transport that keeps connections.
func serveProxy(l net.Listener, upstream, cert, key string) error {
	to := &url.URL{Scheme: "http", Host: upstream}
	handler := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
	}
	if cert != "" {
		return http.ServeTLS(l, handler, cert, key)
	}
	return http.Serve(l, handler)
}

// serveBodies is the upstream for bodies: it reads and discards what is posted, and sends the file
// for a GET. It copies as little as possible, since it shares a core with the load.
func serveBodies(l net.Listener, file string) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if err := serveBodiesOf(c.(*net.TCPConn), file); err != nil && !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "upstream:", err)
			}
		}()
	}
}

func serveBodiesOf(c *net.TCPConn, file string) error {
	body, err := os.Open(file)
	if err != nil {
		return err
	}
	defer body.Close()
	head := make([]byte, 16<<10)
	for {
		m, err := readHead(c, head)
		if err != nil {
			return err
		}
		if m.length < 0 && bytes.HasPrefix(m.head, []byte("POST ")) {
			return fmt.Errorf("a body without Content-Length:\n%s", m.head)
		}
		if err := discard(c, max(0, m.length-int64(m.beyond))); err != nil {
			return fmt.Errorf("read a body: %w", err)
		}
		if bytes.HasPrefix(m.head, []byte("GET "+largePath)) {
			err = sendBody(c, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n", body)
		} else {
			_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n")
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}
