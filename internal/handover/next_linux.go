package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts the next process, which inherits the sockets, and standard input, output and error.
// It must be given the counts, or it is useless.
func Start(c Command, sockets []Socket) (*Next, error) {
	n, err := start(c, sockets)
	if err != nil {
		return nil, fmt.Errorf("start the next process, %s: %w", c.Path, err)
	}
	return n, nil
}

func start(c Command, sockets []Socket) (*Next, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	files := []uintptr{0, 1, 2, uintptr(pair[1])}
	defer func() { // the next process has copies
		for _, fd := range files[firstInherited:] {
			_ = unix.Close(int(fd))
		}
	}()
	l, err := linkOf(os.NewFile(uintptr(pair[0]), "next process"))
	if err != nil {
		return nil, err
	}
	for _, s := range sockets {
		fd, err := duplicate(s.Listener)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("pass the socket %q: %w", s.Name, err)
		}
		files = append(files, uintptr(fd))
	}
	value, err := json.Marshal(inheritance{os.Getpid(), sockets})
	if err != nil {
		l.close()
		return nil, err
	}
	// package os would make the descriptors blocking, and with them those of this process
	pid, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Env: append(forNext(c.Env), variable+"="+string(value)), Files: files})
	if err != nil {
		l.close()
		return nil, err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		l.close()
		return nil, err
	}
	n := &Next{link: l, pid: pid, kill: process.Kill, ended: make(chan struct{})}
	n.stop = func() error { return process.Signal(c.Stop) }
	go func() { // ends with the process
		defer close(n.ended)
		state, err := process.Wait()
		if n.how = fmt.Sprint(err); err == nil {
			n.how = state.String()
		}
	}()
	return n, nil
}

// forNext returns variables for the next process: without those that are about the process itself.
func forNext(env []string) []string {
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case variable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID":
		default:
			out = append(out, v)
		}
	}
	return out
}

// duplicate returns a copy of a listener's descriptor.
func duplicate(l net.Listener) (fd int, err error) {
	c, ok := l.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("a %T has no descriptor", l)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	return control(raw)
}

func control(raw syscall.RawConn) (fd int, err error) {
	failure := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, failure)
}

// linkOf returns a link over a connection's descriptor, and closes the file.
func linkOf(file *os.File) (*link, error) {
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("%s is a %T, expected a Unix socket", file.Name(), c)
	}
	return newLink(conn), nil
}

// inherit takes the descriptors of the previous process. It returns nil if the variable was set for
// another process: then the control socket is not one that the previous process has made.
func inherit(from *inheritance) (*Previous, error) {
	made, err := unix.GetsockoptUcred(firstInherited, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(made.Pid) != from.PID {
		return nil, nil
	}
	ended := func() bool { return hungUp(firstInherited, maxExit) }
	if err := from.check(int(made.Uid), os.Getuid(), os.Getppid(), ended); err != nil {
		return nil, fmt.Errorf("continue where process %d stops: %w", from.PID, err)
	}
	for i := range len(from.Sockets) + 1 {
		unix.CloseOnExec(firstInherited + i)
	}
	l, err := linkOf(os.NewFile(firstInherited, "previous process"))
	if err != nil {
		return nil, fmt.Errorf("connect to the previous process: %w", err)
	}
	p := &Previous{link: l}
	for i, s := range from.Sockets {
		fd := firstInherited + 1 + i
		p.sockets = append(p.sockets, passed{s, os.NewFile(uintptr(fd), s.Name+" "+strconv.Itoa(fd))})
	}
	return p, nil
}

// check returns why this process may not continue the previous one: that has another user, or has
// started another process, which then started this one. Then the wrong process would be awaited
// and ended. If the previous process has ended, its children have another parent.
func (from *inheritance) check(theirs, own, parent int, ended func() bool) error {
	if theirs != own {
		return fmt.Errorf("its user is %d, and that of this process is %d: both must be the same", theirs, own)
	}
	if parent != from.PID && !ended() {
		return fmt.Errorf("it has started process %d, and that has started this one: a script in place of the program must exec it", parent)
	}
	return nil
}

// maxExit bounds the exit of a process: its children can have another parent before the last of its
// threads has closed its files.
const maxExit = 3 * time.Second

// hungUp waits until the other end of a socket is closed, and reports whether it was in time.
func hungUp(fd int32, patience time.Duration) bool {
	late := time.Now().Add(patience)
	for {
		poll := []unix.PollFd{{Fd: fd}}
		_, err := unix.Poll(poll, int(max(0, time.Until(late)).Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && poll[0].Revents&unix.POLLHUP != 0
		}
	}
}

// sendFile sends a copy of the descriptor of a connection or a file.
func (l *link) sendFile(of syscall.Conn) error {
	raw, err := of.SyscallConn()
	if err != nil {
		return err
	}
	fd, err := control(raw)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, _, err = l.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fd), nil)
	return err
}

// receiveFile receives what sendFile has sent.
func (l *link) receiveFile() (*os.File, error) {
	_, files, err := l.read()
	if err == nil && len(files) == 1 {
		return files[0], nil
	}
	closeAll(files)
	if err == nil {
		err = fmt.Errorf("a message with %d descriptors, expected 1", len(files))
	}
	return nil, err
}

// receiveLink receives a link that sendFile has sent.
func (l *link) receiveLink() (*link, error) {
	file, err := l.receiveFile()
	if err != nil {
		return nil, err
	}
	return linkOf(file)
}

// filesOf returns the descriptors of a control message.
func filesOf(rights []byte) (files []*os.File, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// isReset reports whether an error means that the other end of a link was closed.
func isReset(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }
