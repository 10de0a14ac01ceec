//go:build linux

package memstore_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/memstore"
)

var killSeed = flag.Uint64("kill-seed", 1, "seed of what the killed processes take and of when they are killed")

// patience is how long a test waits for an event that must happen. Only a failing
// test waits that long.
const patience = 60 * time.Second

// An errand is a child process's task. Run names the test, which runs again in the
// child.
type errand struct {
	Run    string
	File   string
	Memory int64
	Now    int64 // Unix seconds of its stopped clock
	Seed   uint64
	Round  int

	Growing     bool // and does nothing else
	Settlements int  // after which it kills itself
}

const errandVariable = "MEMSTORE_ERRAND"

// sent reports whether this process is a child, and returns its errand. A child
// writes its reports to out.
func sent(t *testing.T) (e errand, out *os.File, ok bool) {
	text := os.Getenv(errandVariable)
	if text == "" {
		return e, nil, false
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return e, os.NewFile(3, "reports"), true
}

func (e errand) options() memstore.Options {
	now := time.Unix(e.Now, 0)
	return memstore.Options{Memory: e.Memory, File: e.File, Name: e.name(), Now: func() time.Time { return now }}
}

func (e errand) progress() string { return e.File + ".progress" }

func (e errand) name() string { return "errand " + e.Run }

// A child is a process with an errand.
type child struct {
	*testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader // the child's reports
	pipe   *os.File
	output bytes.Buffer // the testing package's output, and a panic's
	cancel context.CancelFunc
}

func start(t *testing.T, e errand) *child {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts processes")
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	c := &child{T: t, out: bufio.NewReaderSize(r, 1<<16), pipe: r, cancel: cancel}
	c.cmd = exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	c.cmd.Env = append(os.Environ(), errandVariable+"="+string(text))
	c.cmd.ExtraFiles, c.cmd.Stdout, c.cmd.Stderr = []*os.File{w}, &c.output, &c.output
	if _, err := c.cmd.StdinPipe(); err != nil { // open until the child is gone
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// kill ends the child with SIGKILL, and waits for its end.
func (c *child) kill() {
	c.Helper()
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.Fatal(err)
	}
}

// end waits until the killed child is gone. If it ended by itself, it has failed.
func (c *child) end() {
	c.Helper()
	defer c.cancel()
	defer c.pipe.Close()
	err := c.cmd.Wait()
	if err == nil || !strings.Contains(err.Error(), "killed") || c.output.Len() > 0 {
		c.Fatalf("the child ended with %v before it was killed:\n%.4000s", err, &c.output)
	}
}

// read reads a report of the child into r, and reports whether there was one.
func (c *child) read(r any) bool {
	c.Helper()
	err := binary.Read(c.out, binary.LittleEndian, r)
	if err != nil && !errors.Is(err, io.EOF) {
		c.Fatalf("a report: %v", err)
	}
	return err == nil
}

// writeReport writes one complete report.
func writeReport(t *testing.T, out *os.File, r any) {
	b, err := binary.Append(nil, binary.LittleEndian, r)
	if err == nil {
		_, err = out.Write(b)
	}
	if err != nil {
		t.Fatal(err)
	}
}
