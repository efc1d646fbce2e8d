package store

import (
	"context"
	"fmt"
	"sync"

	"objstore/internal/oerr"
	"objstore/shard"
)

// abortable is an open writer as others see it.
type abortable interface {
	// cancel ends the writer with this error unless it is past the point of return; it does not wait.
	cancel(err error)
	// about returns what it writes, which nobody may change.
	about() *shard.Spec
}

// claims makes sure that one operation at a time, a writer or a delete, works on a shard.
type claims struct {
	max int
	mu  struct {
		sync.Mutex
		held map[rowKey]*claim
	}
}

type claim struct {
	writer abortable     // nil for a delete
	gone   chan struct{} // made by the first who waits
}

func newClaims(limit int) *claims {
	c := &claims{max: limit}
	c.mu.held = map[rowKey]*claim{}
	return c
}

// take claims the shard for writer w, or for a delete when w is nil.
func (c *claims) take(key rowKey, w abortable) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.held[key] != nil {
		return oerr.Errorf("store.claim", oerr.InProgress, "shard %s.%d has a writer", key.blob(), key.index())
	}
	if len(c.mu.held) >= c.max {
		return oerr.Errorf("store.claim", oerr.Busy, "%d writers are open", c.max)
	}
	c.mu.held[key] = &claim{writer: w}
	return nil
}

// takeOver claims the shard for a delete: it cancels an open writer and waits until that is gone.
func (c *claims) takeOver(ctx context.Context, key rowKey) error {
	for {
		c.mu.Lock()
		held := c.mu.held[key]
		if held == nil && len(c.mu.held) < c.max {
			c.mu.held[key] = &claim{}
			c.mu.Unlock()
			return nil
		}
		if held == nil {
			c.mu.Unlock()
			return oerr.Errorf("store.claim", oerr.Busy, "%d writers are open", c.max)
		}
		if held.gone == nil {
			held.gone = make(chan struct{})
		}
		gone, w := held.gone, held.writer
		c.mu.Unlock()
		if w != nil {
			w.cancel(oerr.E("store.writer", oerr.Canceled, fmt.Errorf("shard %s.%d was deleted", key.blob(), key.index())))
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return oerr.E("store.claim", oerr.KindOf(ctx.Err()), ctx.Err())
		}
	}
}

// writer returns the open writer of a shard, if there is one.
func (c *claims) writer(key rowKey) abortable {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.mu.held[key]; h != nil {
		return h.writer
	}
	return nil
}

func (c *claims) release(key rowKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.mu.held[key]
	if h == nil {
		panic("store: a claim was released twice")
	}
	delete(c.mu.held, key)
	if h.gone != nil {
		close(h.gone)
	}
}

func (c *claims) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.held)
}

// cancelAll cancels every open writer and returns a channel that closes when one of the claims has gone; nil when
// there are none.
func (c *claims) cancelAll(err error) <-chan struct{} {
	c.mu.Lock()
	var first chan struct{}
	var ws []abortable
	for _, h := range c.mu.held {
		if h.gone == nil {
			h.gone = make(chan struct{})
		}
		first = h.gone
		if h.writer != nil {
			ws = append(ws, h.writer)
		}
	}
	c.mu.Unlock()
	for _, w := range ws {
		w.cancel(err)
	}
	return first
}
