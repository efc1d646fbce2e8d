package object

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"objstore/internal/oerr"
	"objstore/shard"
)

// gate admits operations by the buffer memory they will need, before they take any of it: who has passed never waits
// for memory that a waiter holds (shard.Pool's deadlock rule).
type gate struct {
	sem  *semaphore.Weighted
	size int64
}

func newGate(size int64) *gate { return &gate{sem: semaphore.NewWeighted(size), size: size} }

// enter waits for weight bytes, first come first served, at most timeout: Busy then. A weight above the whole gate takes
// the whole gate.
func (g *gate) enter(ctx context.Context, weight int64, timeout time.Duration) (*lease, error) {
	weight = min(weight, g.size)
	if !g.sem.TryAcquire(weight) {
		wait, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := g.sem.Acquire(wait, weight); err != nil {
			if ctx.Err() != nil {
				return nil, oerr.E("object.admit", oerr.KindOf(ctx.Err()), ctx.Err())
			}
			return nil, oerr.Errorf("object.admit", oerr.Busy, "no %d bytes of buffer memory within %s", weight, timeout)
		}
	}
	l := &lease{gate: g, weight: weight}
	l.refs.Store(1)
	return l, nil
}

// lease is admitted memory, perhaps with its buffer. Whoever may still touch the memory holds a reference: a slow drive
// keeps it out of circulation, never gets it overwritten under its hands.
type lease struct {
	gate   *gate
	weight int64
	refs   atomic.Int32
	buf    *shard.Buf
}

func (l *lease) retain() { l.refs.Add(1) }

func (l *lease) release() {
	if l.refs.Add(-1) > 0 {
		return
	}
	if l.buf != nil {
		l.buf.Release()
	}
	l.gate.sem.Release(l.weight)
}

// take admits and gets one buffer of n bytes.
func (e *Engine) take(ctx context.Context, g *gate, n int) (*lease, error) {
	l, err := g.enter(ctx, poolClass(n), e.cfg.AdmitTimeout)
	if err != nil {
		return nil, err
	}
	if l.buf, err = e.d.Pool.Get(ctx, n); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

// poolClass returns what a buffer of n bytes counts for in a shard.Pool; a test holds it in step with the pool.
func poolClass(n int) int64 {
	for _, c := range [...]int64{16 << 10, 80 << 10, 288 << 10, 544 << 10} {
		if int64(n) <= c {
			return c
		}
	}
	c := int64(1 << 20)
	for c < int64(n) {
		c *= 2
	}
	return c
}
