package object

import (
	"context"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

// committed ends an attempt whose blob is now referred to. Shards still open may land late.
func (a *attempt) committed() { a.leave(true) }

// unknown ends an attempt whose commit has no outcome: the blob may be referred to, now or later, so nothing of it is
// removed. Late shards may become durable, but their landing is not announced; repair finds them.
func (a *attempt) unknown() { a.leave(false) }

func (a *attempt) leave(announce bool) {
	a.e.flight.remove(a.blob.WriterPut)
	defer a.lease.release()
	if a.open == 0 {
		a.cancel()
		return
	}
	size := int64(a.slots) * poolClass(slabSize(a.g))
	if !a.e.late.take(a.open, size) {
		a.cancel()
		return
	}
	n := a.open
	if !a.e.background(func() { a.finishLate(announce); a.e.late.give(n, size) }) {
		a.cancel()
		a.e.late.give(n, size)
	}
}

// finishLate waits for the shards that were open at the commit.
func (a *attempt) finishLate(announce bool) {
	var waiting [32]bool
	for i := range a.targets {
		if waiting[i] = a.acked>>i&1 == 0 && a.errs[i] == nil; waiting[i] {
			a.targets[i].stat.outlived(1)
		}
	}
	timer := time.NewTimer(a.e.cfg.LateMax)
	defer timer.Stop()
	closing := a.e.ctx.Done()
	for a.open > 0 {
		select {
		case o := <-a.results:
			if waiting[o.i] {
				a.targets[o.i].stat.outlived(-1)
				waiting[o.i] = false
			}
			a.handle(o)
			if announce && a.acked>>o.i&1 == 1 {
				a.e.announce(a.spec.bucket, metadata.Landing{Key: a.spec.key, Blob: a.blob.ID, Index: uint8(o.i),
					Drive: o.ack.Drive, Incarnation: o.ack.Incarnation, Digest: o.ack.Digest})
			}
		case <-timer.C:
			for i := range a.targets {
				if waiting[i] {
					a.targets[i].stat.failed(context.DeadlineExceeded, time.Now())
				}
			}
			a.cancel() // the outcomes come now: calls end with their context
		case <-closing:
			a.cancel()
			closing = nil
		}
	}
	a.cancel()
}

// refused ends an attempt whose blob will never be referred to by this process: open writers are cancelled, and what may
// have been sealed is abandoned and removed, in the background.
func (a *attempt) refused(cause error) {
	a.e.flight.remove(a.blob.WriterPut)
	defer a.lease.release()
	if a.ctx == nil {
		return // nothing was sent
	}
	a.cancel()
	if a.open == 0 && a.sealing.Load() == 0 {
		return
	}
	select {
	case a.e.jobs <- struct{}{}:
	default:
		a.e.d.OnEvent(Event{Kind: EventLeftOrphan, Blob: a.blob.ID, Err: cause})
		return
	}
	if !a.e.background(func() { a.abandon(); <-a.e.jobs }) {
		<-a.e.jobs
	}
}

// abandon has the blob's commit refused for ever, and only then removes its shards (PROTOCOLS D).
func (a *attempt) abandon() {
	a.drain()
	sealed := a.sealing.Load()
	if sealed == 0 {
		return
	}
	res, err := a.e.commandByID(a.e.ctx, a.spec.bucket, &metadata.Command{Op: metadata.OpAbandon, Key: a.spec.key, Blobs: []ident.ID{a.blob.ID},
		Abandoned: []metadata.Blob{a.blob}})
	if err == nil && len(res.Live) == 1 && res.Live[0] {
		err = oerr.Errorf("object.abandon", oerr.Internal, "blob %s is referred to, though its commit was refused", a.blob.ID)
	}
	if err != nil {
		a.e.d.OnEvent(Event{Kind: EventLeftOrphan, Blob: a.blob.ID, Err: err})
		return
	}
	ctx, cancel := context.WithTimeout(a.e.ctx, a.e.cfg.WriteIdle)
	defer cancel()
	var wg sync.WaitGroup
	for i := range a.targets {
		if sealed>>i&1 == 1 {
			wg.Go(func() {
				ep, _ := a.e.d.Dialer.Endpoint(a.targets[i].node, uint64(a.g.ShardLen()))
				ep.Delete(ctx, []shard.Ref{a.targets[i].ref}) // best effort: orphan collection finds what stays
			})
		}
	}
	wg.Wait()
	a.e.d.OnEvent(Event{Kind: EventAbandoned, Blob: a.blob.ID})
}

// drain waits until no shard goroutine is running: their calls end with the cancelled context.
func (a *attempt) drain() {
	timer := time.NewTimer(a.e.cfg.WriteIdle)
	defer timer.Stop()
	for a.open > 0 {
		select {
		case o := <-a.results:
			a.handle(o)
		case <-timer.C:
			return // a call that outlives its context: the abandon below is right without it
		}
	}
}

// lateBudget bounds what streams that outlive their puts may hold.
type lateBudget struct {
	max      int
	maxBytes int64
	mu       struct {
		sync.Mutex
		n     int
		bytes int64
	}
}

func (b *lateBudget) take(n int, bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.n+n > b.max || b.mu.bytes+bytes > b.maxBytes {
		return false
	}
	b.mu.n += n
	b.mu.bytes += bytes
	return true
}

func (b *lateBudget) give(n int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.n -= n
	b.mu.bytes -= bytes
}
