package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/weirlimit/weir/examples/go/internal/exact"
)

func start(t *testing.T) string {
	app, err := service()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

func TestTheServiceIsLimitedExactly(t *testing.T) { exact.Service(t, start) }

func TestFieldsHaveTheContractsSpelling(t *testing.T) {
	c, err := net.Dial("tcp", strings.TrimPrefix(start(t), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /hello HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n")
	var head strings.Builder
	for lines := bufio.NewScanner(c); lines.Scan() && lines.Text() != ""; {
		head.WriteString(lines.Text() + "\n")
	}
	if !strings.Contains(head.String(), "\nX-RateLimit-Remaining: 9\n") {
		t.Errorf("the head is\n%s", &head)
	}
}
