package object

import (
	"context"
	"fmt"
	"io"
	"time"

	"objstore/internal/oerr"
	"objstore/shard"
)

// readState is where a shard stands in one fetch.
type readState uint8

const (
	readIdle readState = iota // not asked
	readOpen                  // asked
	readGood                  // read and checked
	readBad                   // failed
)

// shardRead is one shard in one fetch.
type shardRead struct {
	state  readState
	late   bool  // open for longer than its drive should need
	needed bool  // body bytes of the window are in it
	lo, hi int64 // shard bytes that are needed, block-aligned; then those that were asked for
	data   []byte
	began  time.Time
	err    error

	// What an earlier, narrower read got: it is enough for the body, whatever becomes of the wider one.
	kept   []byte
	keptLo int64
}

// served reports whether the body bytes in this shard are at hand.
func (r *shardRead) served() bool { return r.state == readGood || r.kept != nil }

// fetch reads one window of a blob: the data shards' blocks that are needed, all at one time; when one of them is bad,
// missing or late, the same blocks of other shards until there are k, from which the rest is rebuilt. Only blocks that
// passed their checksums are looked at. One goroutine runs it; each read has a goroutine of its own, which holds a
// reference to the memory it reads into and ends with one message in results, which has room for all of them.
type fetch struct {
	e       *Engine
	src     *source
	win     window
	lo, hi  int64 // shard bytes that rebuilding needs: all that any needed shard needs
	reads   []shardRead
	main    *lease // a region of hi-lo bytes for each needed shard, in order
	rebuild *lease // n regions of hi-lo bytes: other shards' blocks, and rebuilt ones; nil in a healthy fetch
	results chan readResult
	ctx     context.Context
	cancel  context.CancelFunc
	open    int

	degraded bool // a needed shard failed or is late: k shards must be read as widely as rebuilding needs
}

type readResult struct {
	i    int
	err  error
	took time.Duration
}

// fetch reads and checks a window. Release the result.
func (e *Engine) fetch(ctx context.Context, src *source, win window) (*fetch, error) {
	f := &fetch{e: e, src: src, win: win, reads: make([]shardRead, src.g.N())}
	f.ctx, f.cancel = context.WithTimeout(ctx, e.cfg.ReadTimeout+e.cfg.AdmitTimeout)
	count := f.plan()
	var err error
	if f.main, err = e.take(f.ctx, e.admit.read, count*f.size()); err != nil {
		f.cancel()
		return nil, err
	}
	f.results = make(chan readResult, 2*src.g.N()) // a shard is asked at most twice
	f.start()
	err = f.run(ctx)
	f.cancel() // ends reads that are not needed any more
	if err == nil {
		err = f.finish()
	}
	if err != nil {
		f.release()
		return nil, err
	}
	return f, nil
}

// release gives the memory back; reads that are still open keep theirs until they end.
func (f *fetch) release() {
	f.main.release()
	if f.rebuild != nil {
		f.rebuild.release()
	}
}

func (f *fetch) size() int { return int(f.hi - f.lo) }

// plan finds out which blocks of which shards are needed and returns the number of needed shards.
func (f *fetch) plan() int {
	g, length := f.src.g, f.src.g.ShardLen()
	count := 0
	f.lo = length
	for i := range int(g.K) {
		lo, hi := g.ShardRange(i, f.win.off, f.win.n)
		if lo == hi {
			continue // also cells of the last stripe that hold only zeros
		}
		r := &f.reads[i]
		r.needed = true
		r.lo, r.hi = lo/shard.BlockSize*shard.BlockSize, min(length, (hi+shard.BlockSize-1)/shard.BlockSize*shard.BlockSize)
		f.lo, f.hi = min(f.lo, r.lo), max(f.hi, r.hi)
		count++
	}
	return count
}

// start asks the needed shards, but those that are known to be missing or on a drive in trouble: others stand in for them.
func (f *fetch) start() {
	if f.src.g.K == 1 {
		f.more()
		return
	}
	now := time.Now()
	whole := true
	for i := range int(f.src.g.K) {
		if f.reads[i].needed && f.rank(i, now) > rankGood {
			whole = false
		}
	}
	region := 0
	for i := range f.reads {
		r := &f.reads[i]
		if !r.needed {
			continue
		}
		if whole {
			f.ask(i, f.main, region, r.lo, r.hi)
		} else if f.rank(i, now) <= rankGood {
			f.ask(i, f.main, region, f.lo, f.hi)
		}
		region++
	}
	if !whole {
		f.more()
	}
}

// Ranks of shards in the order in which they are asked.
const (
	rankLocal   = iota // only where any shard will do
	rankGood           //
	rankSuspect        // its drive failed or was slow lately, or its node seems dead
	rankMissing        // had no durable acknowledgement at the commit
	ranks
)

func (f *fetch) rank(i int, now time.Time) int {
	t := &f.src.targets[i]
	switch {
	case f.src.blob.Missing>>i&1 == 1:
		return rankMissing
	case !t.alive || t.stat.isSuspect(now):
		return rankSuspect
	case f.src.g.K == 1 && t.node == f.e.cfg.Node:
		return rankLocal
	}
	return rankGood
}

// ask starts a read of shard i's bytes [lo, hi) into a region of a lease.
func (f *fetch) ask(i int, l *lease, region int, lo, hi int64) {
	r := &f.reads[i]
	if r.state == readGood {
		r.kept, r.keptLo = r.data, r.lo
	}
	r.state, r.late, r.lo, r.hi, r.began = readOpen, false, lo, hi, time.Now()
	r.data = f.region(l, region)[lo-f.lo : hi-f.lo : hi-f.lo]
	f.open++
	l.retain()
	go f.read(i, l, r.lo, r.data, r.began)
}

// read is the goroutine of one read.
func (f *fetch) read(i int, l *lease, lo int64, dst []byte, began time.Time) {
	t := &f.src.targets[i]
	err := f.readOnce(t, lo, dst)
	if err != nil && stale(err) { // this node's map is old: refresh it and try once more
		v, serr := f.e.d.Cluster.Sync(f.ctx)
		if serr == nil {
			var ts []target
			if ts, serr = f.e.targets(v, f.src.blob.PG, f.src.blob.ID, f.src.g.N()); serr == nil {
				err = f.readOnce(&ts[i], lo, dst)
			}
		}
	}
	l.release()
	f.results <- readResult{i, err, time.Since(began)}
}

func (f *fetch) readOnce(t *target, lo int64, dst []byte) error {
	ep, transport := f.e.d.Dialer.Endpoint(t.node, uint64(f.src.g.ShardLen()))
	crcs, err := ep.Read(f.ctx, shard.ReadRequest{Ref: t.ref, Offset: uint64(lo), Length: uint64(len(dst)), Digest: f.src.blob.Digests[t.ref.Index]}, dst)
	if err != nil {
		return err
	}
	f.e.d.CountShard(transport, "get", len(dst))
	return shard.CheckBlocks(t.ref.Blob, t.ref.Index, uint64(lo)/shard.BlockSize, dst, crcs)
}

// run takes results in until the window can be had, or cannot.
func (f *fetch) run(parent context.Context) error {
	deadline := time.Now().Add(f.e.cfg.ReadTimeout)
	timer := time.NewTimer(f.e.cfg.ReadTimeout)
	defer timer.Stop()
	for !f.complete() {
		if f.open == 0 && !f.more() {
			return f.failure("")
		}
		now := time.Now()
		if !now.Before(deadline) {
			return f.failure(fmt.Sprintf(" within %s", f.e.cfg.ReadTimeout))
		}
		timer.Reset(min(f.nextLate(now), deadline.Sub(now)))
		select {
		case res := <-f.results:
			f.handle(res)
		case <-timer.C:
			if f.markLate(time.Now()) {
				f.more()
			}
		case <-parent.Done():
			return oerr.E("object.read", oerr.KindOf(parent.Err()), parent.Err())
		}
	}
	return nil
}

// whole reports whether shard i was asked for all that rebuilding needs.
func (f *fetch) whole(r *shardRead) bool { return r.lo == f.lo && r.hi == f.hi }

// complete reports whether all needed shards are good, or k shards from which they can be rebuilt.
func (f *fetch) complete() bool {
	missing, good := false, 0
	for i := range f.reads {
		r := &f.reads[i]
		if r.state == readGood && f.whole(r) {
			good++
		}
		if r.needed && !r.served() {
			missing = true
		}
	}
	return !missing || good >= int(f.src.g.K)
}

// handle takes one result in and asks for more where it failed.
func (f *fetch) handle(res readResult) {
	f.open--
	r, t := &f.reads[res.i], &f.src.targets[res.i]
	if res.err == nil {
		r.state, r.late = readGood, false
		t.stat.took(latencyRead, res.took)
		if f.degraded {
			f.more() // what it got may be too narrow to rebuild from
		}
		return
	}
	r.state, r.err = readBad, res.err
	t.stat.failed(res.err, time.Now())
	if (oerr.Is(res.err, oerr.ShardMissing) || oerr.IsCorrupt(res.err)) && f.src.blob.Missing>>res.i&1 == 0 {
		f.e.reportBad(f.src, res.i, res.err)
	}
	f.more()
}

// more asks as many further shards as are missing to k, best first, and reports whether it asked any.
func (f *fetch) more() bool {
	f.degraded = true
	coming := 0
	for i := range f.reads {
		if r := &f.reads[i]; f.whole(r) && (r.state == readGood || (r.state == readOpen && !r.late)) {
			coming++
		}
	}
	asked := false
	for coming < int(f.src.g.K) && f.askNext() {
		asked = true
		coming++
	}
	return asked
}

// askNext asks the best shard that can still help; false when there is none.
func (f *fetch) askNext() bool {
	best, bestRank := -1, ranks
	now := time.Now()
	for i := range f.reads {
		r := &f.reads[i]
		rank := f.rank(i, now)
		if r.state == readGood && !f.whole(r) {
			rank = rankLocal // known to be good, only more of it is needed
		} else if r.state != readIdle {
			continue
		}
		if rank < bestRank {
			best, bestRank = i, rank
		}
	}
	if best < 0 {
		return false
	}
	l, region := f.main, 0
	if r := &f.reads[best]; f.src.g.K == 1 && !f.mainUsed() {
		// Any shard is the body: the first that is asked takes the only region.
	} else if r.needed && r.state == readIdle && f.src.g.K > 1 {
		region = f.mainRegion(best)
	} else if err := f.takeRebuild(); err != nil {
		return false
	} else {
		l, region = f.rebuild, best
	}
	f.ask(best, l, region, f.lo, f.hi)
	return true
}

func (f *fetch) mainUsed() bool {
	for i := range f.reads {
		if f.reads[i].state != readIdle {
			return true
		}
	}
	return false
}

// nextLate returns how long it is until the next open read is late.
func (f *fetch) nextLate(now time.Time) time.Duration {
	next := f.e.cfg.ReadTimeout
	for i := range f.reads {
		if r := &f.reads[i]; r.state == readOpen && !r.late {
			next = min(next, f.patience(i)-now.Sub(r.began))
		}
	}
	return max(next, 0)
}

func (f *fetch) patience(i int) time.Duration {
	return f.src.targets[i].stat.limit(latencyRead, f.e.cfg.HedgeMin, f.e.cfg.HedgeMax, f.e.cfg.HedgeCold)
}

// markLate marks the open reads that are late now and reports whether there is a new one.
func (f *fetch) markLate(now time.Time) bool {
	found := false
	for i := range f.reads {
		r := &f.reads[i]
		if r.state != readOpen || r.late || now.Sub(r.began) < f.patience(i) {
			continue
		}
		r.late, found = true, true
		t := &f.src.targets[i]
		t.stat.wasLate(now)
		f.e.d.OnEvent(Event{Kind: EventHedged, Blob: f.src.blob.ID, Index: uint8(i), Drive: t.ref.Drive})
	}
	return found
}

// writeTo writes the window's body bytes in order.
func (f *fetch) writeTo(w io.Writer) error {
	for p := range f.src.g.Plan(f.win.off, f.win.n) {
		r := &f.reads[p.Shard]
		data, lo := r.data, r.lo
		if r.kept != nil {
			data, lo = r.kept, r.keptLo
		}
		at := int(p.ShardOff - lo)
		if _, err := w.Write(data[at : at+p.Len]); err != nil {
			return err
		}
	}
	return nil
}

// failure says what became of each shard.
func (f *fetch) failure(within string) error {
	good := 0
	text := make([]error, len(f.reads))
	for i := range f.reads {
		switch r := &f.reads[i]; r.state {
		case readGood:
			good++
		case readBad:
			text[i] = r.err
		case readOpen:
			text[i] = errNoAnswer
		}
	}
	return oerr.Errorf("object.read", oerr.Unavailable, "blob %s: %d shards readable%s, expected %d: %w",
		f.src.blob.ID, good, within, f.src.g.K, shardErrors(f.src.targets, text))
}
