package devcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is one node's process.
type child struct {
	spec
	mu struct {
		sync.Mutex
		process *os.Process
		pid     int
		exited  chan struct{} // closed when the process is gone; nil before the first start
		err     error         // how it ended
	}
	starting sync.Mutex // one start at a time
}

// spawner starts processes from one operating-system thread that lives as long as the cluster: the parent-death signal
// of a child fires when the thread that made it ends (prctl(2), PR_SET_PDEATHSIG), not only when the process does.
type spawner struct {
	requests chan spawnRequest
	gone     chan struct{}
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), gone: make(chan struct{})}
	go func() {
		defer close(s.gone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd, make(chan error, 1)}
	s.requests <- r
	return <-r.done
}

func (s *spawner) close() { close(s.requests); <-s.gone }

// start starts the node's process. It must not be running.
func (c *child) start(sp *spawner, binary string, args, env []string) error {
	for _, d := range c.dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	log, err := c.openLog()
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, c.home, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := sp.start(cmd); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	exited := make(chan struct{})
	c.mu.Lock()
	c.mu.process, c.mu.pid, c.mu.exited, c.mu.err = cmd.Process, cmd.Process.Pid, exited, nil
	c.mu.Unlock()
	go func() {
		err := cmd.Wait()
		c.mu.Lock()
		c.mu.err = err
		c.mu.Unlock()
		close(exited)
	}()
	return nil
}

func (c *child) logPath() string { return filepath.Join(c.home, "log") }

func (c *child) openLog() (*os.File, error) {
	if st, err := os.Stat(c.logPath()); err == nil && st.Size() > maxLog {
		if err := os.Rename(c.logPath(), c.logPath()+".old"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(c.logPath(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// running returns the pid and whether the process is there; exited is nil when it never was.
func (c *child) running() (pid int, exited chan struct{}, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.exited == nil {
		return 0, nil, false
	}
	select {
	case <-c.mu.exited:
		return c.mu.pid, c.mu.exited, false
	default:
		return c.mu.pid, c.mu.exited, true
	}
}

// signal sends sig if the process is still there; os.Process never signals a pid that was reaped.
func (c *child) signal(sig syscall.Signal) {
	c.mu.Lock()
	p := c.mu.process
	c.mu.Unlock()
	if p != nil {
		_ = p.Signal(sig) // it may be gone already, which is as good
	}
}

// wait waits for the process to be gone.
func (c *child) wait(timeout time.Duration) bool {
	_, exited, alive := c.running()
	if !alive {
		return true
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-exited:
		return true
	case <-t.C:
		return false
	}
}

// ended describes how the process ended, with the end of its log.
func (c *child) ended() error {
	c.mu.Lock()
	err := c.mu.err
	c.mu.Unlock()
	how := "exit status 0"
	if err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended (%s); its log %s ends:\n%s", c.name, how, c.logPath(), c.logTail())
}

// logTail returns the last lines of the log, indented.
func (c *child) logTail() string {
	const tail, lines = 4 << 10, 12
	f, err := os.Open(c.logPath())
	if err != nil {
		return "  " + err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return "  " + err.Error()
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil && !errors.Is(err, io.EOF) {
		return "  " + err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
