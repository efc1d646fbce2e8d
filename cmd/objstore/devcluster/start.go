package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"objstore/admin"
)

const tokenTTL = 10 * time.Minute

// bringUp starts every node and returns when all are ready. A node without an identity is made a member first: the
// first one founds the cluster, the others join it with a one-time token each.
func (c *Cluster) bringUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready within %s", readyTimeout))
	defer cancel()
	var joining []*child
	for _, ch := range c.children {
		switch {
		case ch.index == 1 || ch.hasIdentity():
			if err := c.launch(ch, c.founding(ch)); err != nil {
				return err
			}
		default:
			joining = append(joining, ch)
		}
	}
	for _, ch := range joining {
		flags, err := c.joinFlags(ctx, ch)
		if err != nil {
			return err
		}
		if err := c.launch(ch, flags); err != nil {
			return err
		}
		if err := c.awaitMember(ctx, ch); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, ch := range c.children {
		g.Go(func() error { return c.awaitReady(ctx, ch) })
	}
	return g.Wait()
}

// awaitMember waits for the node's identity, so that nodes are numbered in the order of their names.
func (c *Cluster) awaitMember(ctx context.Context, ch *child) error {
	for !ch.hasIdentity() {
		if !ch.alive() {
			return ch.ended()
		}
		if !pause(ctx, pollInterval) {
			return fmt.Errorf("%s did not join: %w; its log %s ends:\n%s", ch.name, context.Cause(ctx), ch.logPath(), ch.logTail())
		}
	}
	return nil
}

// founding returns the flags with which the first node founds a cluster. With an identity the server ignores them.
func (c *Cluster) founding(ch *child) []string {
	if ch.index != 1 || len(c.children) == 1 || ch.hasIdentity() {
		return nil
	}
	return []string{"--bootstrap-expect", fmt.Sprint(len(c.children))}
}

// joinFlags gets a token from whichever node hands one out and writes it where the joining node reads it.
func (c *Cluster) joinFlags(ctx context.Context, ch *child) ([]string, error) {
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(ch.home, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(ch.home, "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return nil, err
	}
	return []string{"--join", c.children[0].addr[portInternode], "--token-file", path}, nil
}

// token asks the running nodes until one answers; a node that has just started needs a moment.
func (c *Cluster) token(ctx context.Context) (string, error) {
	client, err := admin.NewClient(c.adminEndpoints(), c.cred.AccessKey, c.cred.SecretKey, c.cred.Region)
	if err != nil {
		return "", err
	}
	for {
		t, err := client.Token(ctx, tokenTTL)
		if err == nil {
			return t.Token, nil
		}
		if first := c.children[0]; !first.alive() {
			return "", first.ended()
		}
		if !pause(ctx, pollInterval) {
			return "", fmt.Errorf("no join token: %w: %w", context.Cause(ctx), err)
		}
	}
}

func (c *child) alive() bool { _, _, ok := c.running(); return ok }

// adminEndpoints lists the nodes that were started.
func (c *Cluster) adminEndpoints() []string {
	var e []string
	for _, ch := range c.children {
		if ch.alive() {
			e = append(e, "http://"+ch.addr[portAdmin])
		}
	}
	if len(e) == 0 {
		e = append(e, "http://"+c.children[0].addr[portAdmin])
	}
	return e
}

// launch starts a node's process. The founder alone gets the root credential.
func (c *Cluster) launch(ch *child, flags []string) error {
	if err := os.MkdirAll(ch.home, 0o700); err != nil {
		return err
	}
	if err := ch.checkPorts(); err != nil {
		return err
	}
	env := make([]string, 0, len(c.cfg.Env)+2)
	for _, kv := range c.cfg.Env {
		if !strings.HasPrefix(kv, "OBJ_ROOT_ACCESS_KEY=") && !strings.HasPrefix(kv, "OBJ_ROOT_SECRET_KEY=") {
			env = append(env, kv)
		}
	}
	if ch.index == 1 && !ch.hasIdentity() {
		env = append(env, "OBJ_ROOT_ACCESS_KEY="+c.cred.AccessKey, "OBJ_ROOT_SECRET_KEY="+c.cred.SecretKey)
	}
	return ch.start(c.spawner, c.cfg.Exec, ch.arguments(flags), env)
}

// awaitReady polls the node's readiness until it is ready, its process ends, or ctx does.
func (c *Cluster) awaitReady(ctx context.Context, ch *child) error {
	_, exited, alive := ch.running()
	if !alive {
		return ch.ended()
	}
	last := errors.New("never asked")
	for {
		if last = c.ready(ctx, ch); last == nil {
			return nil
		}
		select {
		case <-exited:
			return ch.ended()
		default:
		}
		if !pause(ctx, pollInterval) {
			return fmt.Errorf("%s: %w: %w; its log %s ends:\n%s", ch.name, context.Cause(ctx), last, ch.logPath(), ch.logTail())
		}
	}
}

// ready asks once.
func (c *Cluster) ready(ctx context.Context, ch *child) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ch.addr[portS3]+"/-/ready", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("readiness: read status %d, expected 200", resp.StatusCode)
	}
	return nil
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
