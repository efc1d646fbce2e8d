package store

import (
	"context"
	"sync/atomic"
	"time"

	"objstore/internal/oerr"
)

// ioPool bounds the device operations of one kind on one drive. A job runs on a goroutine of its own while it holds a
// slot; it cannot be interrupted, so whoever waits for it gives up at its deadline and the slot stays taken until the
// device answers.
type ioPool struct {
	slots      chan int
	since      []atomic.Int64 // for each slot: Unix nanoseconds at which its job began, 0 when free
	waiting    atomic.Int64
	maxWaiting int64
}

func newIOPool(slots, maxWaiting int) *ioPool {
	p := &ioPool{slots: make(chan int, slots), since: make([]atomic.Int64, slots), maxWaiting: int64(maxWaiting)}
	for i := range slots {
		p.slots <- i
	}
	return p
}

// acquire takes a slot; Busy when too many wait already.
func (p *ioPool) acquire(ctx context.Context) (int, error) {
	select {
	case slot := <-p.slots:
		p.since[slot].Store(time.Now().UnixNano())
		return slot, nil
	default:
	}
	if p.waiting.Add(1) > p.maxWaiting {
		p.waiting.Add(-1)
		return 0, oerr.Errorf("store.io", oerr.Busy, "%d operations wait for the drive", p.maxWaiting)
	}
	defer p.waiting.Add(-1)
	select {
	case slot := <-p.slots:
		p.since[slot].Store(time.Now().UnixNano())
		return slot, nil
	case <-ctx.Done():
		return 0, oerr.E("store.io", oerr.KindOf(ctx.Err()), ctx.Err())
	}
}

func (p *ioPool) release(slot int) {
	p.since[slot].Store(0)
	p.slots <- slot
}

// older counts the jobs that began before t.
func (p *ioPool) older(t time.Time) int {
	n, limit := 0, t.UnixNano()
	for i := range p.since {
		if s := p.since[i].Load(); s != 0 && s < limit {
			n++
		}
	}
	return n
}
