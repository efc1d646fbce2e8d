package devcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	maxControlLine  = 4 << 10 // bytes
	maxControlConns = 32
	controlTimeout  = readyTimeout + 15*time.Second
	reapWait        = 2 * time.Second // for a process that was killed from outside to be seen as gone
)

// request is one line on the socket.
type request struct {
	Op   string `json:"op"` // kill or start
	Node string `json:"node"`
}

// reply is the line that answers it.
type reply struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// viaFD makes a socket path that fits into sockaddr_un (108 bytes) however deep the folder lies.
func viaFD(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// listen opens the control socket. It is made inside a folder that only the owner can enter and moved into place with
// its final mode, so there is no moment at which somebody else could connect.
func (c *Cluster) listen() (net.Listener, error) {
	private, err := os.MkdirTemp(c.cfg.Dir, ".sock")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	dir, err := os.Open(private)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: viaFD(dir, socketFile), Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // its path has moved; control.close removes it
	path := filepath.Join(private, socketFile)
	if err := errors.Join(os.Chmod(path, 0o600), os.Rename(path, filepath.Join(c.cfg.Dir, socketFile))); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// control serves the socket.
type control struct {
	c      *Cluster
	l      net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}
}

func newControl(c *Cluster, l net.Listener) *control {
	ctl := &control{c: c, l: l, slots: make(chan struct{}, maxControlConns)}
	ctl.ctx, ctl.cancel = context.WithCancel(context.Background())
	ctl.wg.Go(ctl.accept)
	return ctl
}

func (ctl *control) close() {
	ctl.cancel()
	ctl.l.Close()
	ctl.wg.Wait()
	os.Remove(filepath.Join(ctl.c.cfg.Dir, socketFile))
}

func (ctl *control) accept() {
	for {
		conn, err := ctl.l.Accept()
		if err != nil {
			return // closed
		}
		select {
		case ctl.slots <- struct{}{}:
			ctl.wg.Go(func() {
				defer func() { conn.Close(); <-ctl.slots }()
				ctl.handle(conn)
			})
		default:
			conn.Close()
		}
	}
}

func (ctl *control) handle(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(controlTimeout))
	stop := context.AfterFunc(ctl.ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var q request
	line, err := bufio.NewReader(io.LimitReader(conn, maxControlLine)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &q)
	}
	var a reply
	if err == nil {
		a.PID, err = ctl.c.do(ctl.ctx, q)
	}
	if err != nil {
		a.Error = err.Error()
	}
	b, err := json.Marshal(a)
	if err == nil {
		conn.Write(append(b, '\n'))
	}
}

func (c *Cluster) do(ctx context.Context, q request) (int, error) {
	for _, ch := range c.children {
		if ch.name != q.Node {
			continue
		}
		switch q.Op {
		case "kill":
			return c.kill(ch)
		case "start":
			return c.restart(ctx, ch)
		}
		return 0, fmt.Errorf("operation: read %q, expected kill or start", q.Op)
	}
	return 0, fmt.Errorf("node: read %q, expected n1 to n%d", q.Node, len(c.children))
}

func (c *Cluster) kill(ch *child) (int, error) {
	pid, _, alive := ch.running()
	if !alive {
		return 0, fmt.Errorf("%s is not running (its last pid was %d)", ch.name, pid)
	}
	ch.signal(syscall.SIGKILL)
	if !ch.wait(killWait) {
		return pid, fmt.Errorf("%s (pid %d) is still there %s after SIGKILL", ch.name, pid, killWait)
	}
	return pid, nil
}

// restart starts a node that is not running and waits until it is ready. dev.json has the new pid as soon as there is
// one: a test may have to pause a node that cannot become ready.
func (c *Cluster) restart(ctx context.Context, ch *child) (int, error) {
	ch.starting.Lock()
	defer ch.starting.Unlock()
	if pid, _, alive := ch.running(); alive && !ch.wait(reapWait) {
		return pid, fmt.Errorf("%s is running already (pid %d)", ch.name, pid)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready within %s", readyTimeout))
	defer cancel()
	flags := c.founding(ch)
	if ch.index != 1 && !ch.hasIdentity() {
		var err error
		if flags, err = c.joinFlags(ctx, ch); err != nil {
			return 0, err
		}
	}
	if err := c.launch(ch, flags); err != nil {
		return 0, err
	}
	if err := c.writeState(); err != nil {
		ch.signal(syscall.SIGKILL)
		return 0, err
	}
	pid, _, _ := ch.running()
	return pid, c.awaitReady(ctx, ch)
}

// Kill kills a node of the dev cluster that runs in dir, Start starts it again and waits until it is ready. Both return
// the pid.
func Kill(ctx context.Context, dir, node string) (int, error) {
	return ask(ctx, dir, request{"kill", node})
}

// Start starts a node that is not running.
func Start(ctx context.Context, dir, node string) (int, error) {
	return ask(ctx, dir, request{"start", node})
}

func ask(ctx context.Context, dir string, q request) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", viaFD(d, socketFile))
	if err != nil {
		return 0, fmt.Errorf("no dev cluster is running in %s: %w", dir, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := json.Marshal(q)
	if err != nil {
		return 0, err
	}
	if _, err := conn.Write(append(b, '\n')); err != nil {
		return 0, err
	}
	var a reply
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return 0, fmt.Errorf("the dev cluster in %s did not answer: %w", dir, errors.Join(err, ctx.Err()))
	}
	if a.Error != "" {
		return a.PID, errors.New(a.Error)
	}
	return a.PID, nil
}
