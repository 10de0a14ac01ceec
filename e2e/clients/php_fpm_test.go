package clients

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/e2e/child"
)

// phpFPM is a running PHP-FPM whose pages send requests.
type phpFPM struct {
	socket string
	page   string // absolute path of the script
}

const phpFPMConf = `
[global]
error_log = /dev/stderr
daemonize = no
[www]
listen = %[1]s/fpm.sock
user = %[2]d
group = %[3]d
pm = static
pm.max_children = %[4]d
clear_env = no
catch_workers_output = yes
php_admin_value[display_errors] = stderr
php_admin_value[max_execution_time] = 120
`

// startPHPFPM starts a PHP-FPM with so many workers.
func startPHPFPM(t *testing.T, workers int) *phpFPM {
	t.Helper()
	found, err := filepath.Glob("/usr/sbin/php-fpm*")
	if err != nil || len(found) == 0 {
		t.Fatal("there is no php-fpm (scripts/deps installs what tests need)")
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "fpm.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, phpFPMConf, dir, os.Getuid(), os.Getgid(), workers), 0o600); err != nil {
		t.Fatal(err)
	}
	page, err := filepath.Abs("testdata/php/page.php")
	if err != nil {
		t.Fatal(err)
	}
	f := &phpFPM{socket: filepath.Join(dir, "fpm.sock"), page: page}
	p, err := child.Start(exec.Command(found[0], "--nodaemonize", "--allow-to-run-as-root", "--fpm-config", conf), filepath.Join(dir, "log"), syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(child.Patience) })
	if err := p.Await("PHP-FPM listens", func() bool {
		c, err := net.Dial("unix", f.socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

// A phpView is what a page view saw.
type phpView struct {
	Status   int
	Reset    int64 // Unix seconds
	Error    string
	Again    int64 // seconds
	Refused  int   // 429s
	Waited   bool
	Overhead int64     // nanoseconds besides the request itself and any wait
	CPU      float64   // microseconds of processor time, likewise
	More     []float64 // likewise, of further requests
	Failures []string
	Pid      int
}

// view requests the page over FastCGI.
func (f *phpFPM) view(query url.Values) (v phpView, err error) {
	out, err := f.respond(query.Encode())
	if err != nil {
		return v, err
	}
	_, body, _ := strings.Cut(out, "\r\n\r\n")
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		return v, fmt.Errorf("the page printed %q: %w", out, err)
	}
	return v, nil
}

// The types of records of FastCGI that a client needs.
const (
	fcgiBegin  = 1
	fcgiEnd    = 3
	fcgiParams = 4
	fcgiStdin  = 5
	fcgiStdout = 6
)

// respond sends one request over a connection of its own, and returns what the script printed.
func (f *phpFPM) respond(query string) (string, error) {
	c, err := net.Dial("unix", f.socket)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var out bytes.Buffer
	record := func(kind byte, content []byte) {
		out.Write([]byte{1, kind, 0, 1, byte(len(content) >> 8), byte(len(content)), 0, 0})
		out.Write(content)
	}
	record(fcgiBegin, []byte{0, 1, 0, 0, 0, 0, 0, 0})
	var params []byte
	for _, p := range [][2]string{
		{"SCRIPT_FILENAME", f.page}, {"SCRIPT_NAME", "/page.php"}, {"REQUEST_METHOD", "GET"}, {"QUERY_STRING", query},
		{"REQUEST_URI", "/page.php?" + query}, {"SERVER_PROTOCOL", "HTTP/1.1"}, {"GATEWAY_INTERFACE", "CGI/1.1"},
	} {
		for _, text := range p {
			params = binary.BigEndian.AppendUint32(params, 1<<31|uint32(len(text)))
		}
		params = append(append(params, p[0]...), p[1]...)
	}
	record(fcgiParams, params)
	record(fcgiParams, nil)
	record(fcgiStdin, nil)
	if _, err := c.Write(out.Bytes()); err != nil {
		return "", err
	}
	var printed strings.Builder
	for {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return printed.String(), fmt.Errorf("PHP-FPM gives up after %q: %w", printed.String(), err)
		}
		content := make([]byte, int(binary.BigEndian.Uint16(head[4:]))+int(head[6]))
		if _, err := io.ReadFull(c, content); err != nil {
			return printed.String(), err
		}
		content = content[:len(content)-int(head[6])]
		switch head[1] {
		case fcgiStdout:
			printed.Write(content)
		case fcgiEnd:
			return printed.String(), nil
		}
	}
}
