package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A server is our own redis-server on a spare port, which writes nothing to disk.
type server struct {
	address string
	port    int
	version string
	cmd     *exec.Cmd
	dir     string
	client  rueidis.Client // for reading its state
}

// startServer starts a server and waits until it answers.
func startServer(ctx context.Context, binary string) (*server, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, fmt.Errorf("start a server: %w: install Debian's package redis-server, or name another with -server", err)
	}
	s := &server{}
	if s.dir, err = os.MkdirTemp("", "weir-bench-redis"); err != nil {
		return nil, err
	}
	if s.port, err = sparePort(); err != nil {
		return nil, err
	}
	s.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	s.cmd = exec.Command(path, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--maxclients", "4000", "--logfile", "server.log")
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	if err := s.await(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func sparePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (s *server) await(ctx context.Context) (err error) {
	for range 100 {
		if s.client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.address}, DisableCache: true, PipelineMultiplex: -1}); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err != nil {
		return fmt.Errorf("the server on %s does not answer: %w", s.address, err)
	}
	info, err := s.info(ctx, "server")
	if err != nil {
		return err
	}
	name, version := "Redis", info["redis_version"]
	if v, ok := info["valkey_version"]; ok {
		name, version = "Valkey", v
	}
	s.version = name + " " + version
	return nil
}

func (s *server) pid() int { return s.cmd.Process.Pid }

func (s *server) stop() {
	if s.client != nil {
		s.client.Close()
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// flush deletes every key, synchronously.
func (s *server) flush(ctx context.Context) error {
	return s.client.Do(ctx, s.client.B().Flushall().Sync().Build()).Error()
}

func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.client.Do(ctx, s.client.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return nil, fmt.Errorf("ask the server for %s: %w", section, err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// A reading is what the server had done at one moment.
type reading struct {
	cpu   time.Duration // processor time, in user and in system
	asked int64         // scripts that ran
	ran   time.Duration // how long they ran, by INFO commandstats
}

var callsOf = regexp.MustCompile(`^calls=(\d+),usec=(\d+),`)

// read returns what the server has done so far.
func (s *server) read(ctx context.Context) (r reading, err error) {
	cpu, err := s.info(ctx, "cpu")
	if err != nil {
		return r, err
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[name], 64)
		if err != nil {
			return r, fmt.Errorf("the server's %s is %q: %w", name, cpu[name], err)
		}
		r.cpu += time.Duration(seconds * float64(time.Second))
	}
	commands, err := s.info(ctx, "commandstats")
	if err != nil {
		return r, err
	}
	for _, name := range []string{"eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"} {
		if m := callsOf.FindStringSubmatch(commands["cmdstat_"+name]); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			r.asked += n
			n, _ = strconv.ParseInt(m[2], 10, 64)
			r.ran += time.Duration(n) * time.Microsecond
		}
	}
	return r, nil
}
