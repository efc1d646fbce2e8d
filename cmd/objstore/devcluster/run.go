package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Cluster is a running dev cluster.
type Cluster struct {
	cfg      Config
	cred     *Credentials
	children []*child
	spawner  *spawner
	http     *http.Client
	stateMu  sync.Mutex // dev.json
	stopped  bool       // under stateMu: dev.json is not written any more
}

// Run brings the cluster up, writes dev.json, calls ready, serves dev kill and dev start, and stops every node when ctx
// ends. It returns nil after an orderly stop.
func Run(ctx context.Context, cfg Config, ready func(*State)) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return err
	}
	cfg.Dir = dir
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, name := range []string{stateFile, socketFile} {
		if err := removeIfThere(filepath.Join(cfg.Dir, name)); err != nil {
			return err
		}
	}
	c := &Cluster{cfg: cfg, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if c.cred, err = cfg.credentials(); err != nil {
		return err
	}
	var ports []error
	for i := 1; i <= cfg.Nodes; i++ {
		ch := &child{spec: cfg.spec(i)}
		ports = append(ports, ch.checkPorts())
		c.children = append(c.children, ch)
	}
	if err := errors.Join(ports...); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(cfg.Dir, layoutFile), layout{cfg.Nodes, cfg.Drives, cfg.Host, cfg.BasePort}); err != nil {
		return err
	}
	c.spawner = newSpawner()
	defer c.spawner.close()
	defer c.stop()
	return c.serve(ctx, ready)
}

func (c *Cluster) serve(ctx context.Context, ready func(*State)) error {
	if err := c.bringUp(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while it came up
		}
		return err
	}
	l, err := c.listen()
	if err != nil {
		return err
	}
	ctl := newControl(c, l)
	defer ctl.close()
	if err := c.writeState(); err != nil {
		return err
	}
	if ready != nil {
		ready(c.state())
	}
	watch, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, ch := range c.children {
		wg.Go(func() { c.watch(watch, ch) })
	}
	<-ctx.Done()
	cancel()
	wg.Wait()
	return nil
}

// watch says so when a node's process ends. It does not start it again: what ended it should be looked at.
func (c *Cluster) watch(ctx context.Context, ch *child) {
	for {
		pid, exited, alive := ch.running()
		if alive {
			select {
			case <-ctx.Done():
				return
			case <-exited:
				fmt.Fprintf(c.cfg.Out, "%s (pid %d) ended; objstore dev start %s --dir %s starts it again\n", ch.name, pid, ch.name, c.cfg.Dir)
			}
		}
		if !pause(ctx, pollInterval) {
			return
		}
	}
}

func (c *Cluster) state() *State {
	s := &State{AccessKey: c.cred.AccessKey, SecretKey: c.cred.SecretKey, Region: c.cred.Region}
	for _, ch := range c.children {
		pid, _, _ := ch.running()
		s.Nodes = append(s.Nodes, NodeState{Name: ch.name, PID: pid, S3: "http://" + ch.addr[portS3], Admin: "http://" + ch.addr[portAdmin],
			Internode: ch.addr[portInternode], Data: ch.dirs})
	}
	return s
}

func (c *Cluster) writeState() error {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if c.stopped {
		return errors.New("the cluster is stopping")
	}
	return writeJSON(filepath.Join(c.cfg.Dir, stateFile), c.state())
}

// stop removes dev.json and ends every process: SIGTERM first (and SIGCONT, for one that was paused), SIGKILL for what
// is still there after stopGrace.
func (c *Cluster) stop() {
	c.stateMu.Lock()
	c.stopped = true
	err := removeIfThere(filepath.Join(c.cfg.Dir, stateFile))
	c.stateMu.Unlock()
	if err != nil {
		fmt.Fprintf(c.cfg.Out, "dev.json: %v\n", err)
	}
	for _, ch := range c.children {
		ch.signal(syscall.SIGTERM)
		ch.signal(syscall.SIGCONT)
	}
	deadline := time.Now().Add(stopGrace)
	for _, ch := range c.children {
		if !ch.wait(time.Until(deadline)) {
			fmt.Fprintf(c.cfg.Out, "%s did not stop within %s; killed\n", ch.name, stopGrace)
			ch.signal(syscall.SIGKILL)
		}
	}
	for _, ch := range c.children {
		if !ch.wait(time.Until(deadline.Add(2 * time.Second))) {
			fmt.Fprintf(c.cfg.Out, "%s is still there after SIGKILL\n", ch.name)
		}
	}
}
