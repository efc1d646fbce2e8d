package repair

import (
	"context"
	"slices"
	"sync"
	"time"

	"objstore/cluster"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/shard"
)

const (
	deleteTimeout = 30 * time.Second // for one batch on one drive
	deleteBatch   = 1024             // shards
	graceParts    = 16               // rounds in one grace
	maxSights     = 400000           // g/ rows whose first sight is kept in memory; those beyond wait for their turn
)

// sight is what is remembered of a g/ row.
type sight struct {
	first    time.Time // monotonic
	group    ident.Group
	round    uint32 // in which it was last seen
	answered uint32 // bitmap of shards whose drives have answered
	epoch    uint64 // of the placement group when they did
}

type sights struct {
	m     map[ident.ID]sight
	round uint32
}

// garbageRound removes the shards of garbage blobs from all their drives, those listed missing included. A row goes when
// every drive has answered: unreachable is no answer, a newer incarnation means absent.
func (w *Worker) garbageRound(ctx context.Context) time.Duration {
	var took time.Duration
	w.garbage.round++
	whole := map[ident.Group]bool{} // groups whose rows were all seen
	leads := w.deps.Leads()
	for _, g := range leads {
		after := ""
		for ctx.Err() == nil {
			a, err := w.query(ctx, g, &metadata.Query{Op: metadata.QueryGarbage, After: after, Max: pageRows}, &took)
			if err != nil {
				break
			}
			w.garbagePage(ctx, g, a.Garbage)
			if !a.Truncated {
				whole[g] = true
				break
			}
			after = a.Next
		}
	}
	for id, s := range w.garbage.m {
		if s.round != w.garbage.round && (whole[s.group] || !slices.Contains(leads, s.group)) {
			delete(w.garbage.m, id)
		}
	}
	return pause(min(max(w.cfg.GarbageGrace/graceParts, roundInterval), roundMax), took)
}

// removal is one shard of one row to remove.
type removal struct {
	row   int
	index uint8
	ref   shard.Ref
}

func (w *Worker) garbagePage(ctx context.Context, g ident.Group, rows []metadata.GarbageRow) {
	v := w.deps.Source.View()
	byDrive := map[*cluster.Drive][]removal{}
	open := make([]int, len(rows)) // answers still needed
	for i := range rows {
		b := &rows[i].Blob
		s, ripe := w.see(g, v, b)
		if !ripe {
			open[i] = -1
			continue
		}
		for _, p := range places(v, b) {
			switch d := p.drive; {
			case b.K > 0 && s.answered&(1<<p.index) != 0, d != nil && d.State == cluster.DriveRemoved:
			case d == nil || !w.deps.Alive(d.Node):
				open[i]++
			default:
				open[i]++
				byDrive[d] = append(byDrive[d], removal{i, p.index,
					shard.Ref{Drive: d.ID, Incarnation: d.Incarnation, Epoch: v.Epoch, Blob: b.ID, Index: p.index}})
			}
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for d, list := range byDrive {
		if !w.removals.admit(d.ID) {
			continue
		}
		wg.Go(func() {
			for part := range slices.Chunk(list, deleteBatch) {
				if !w.remove(ctx, d, part, func(r *removal) {
					mu.Lock()
					defer mu.Unlock()
					open[r.row]--
					if s, ok := w.garbage.m[r.ref.Blob]; ok && rows[r.row].Blob.K > 0 {
						s.answered |= 1 << r.index
						w.garbage.m[r.ref.Blob] = s
					}
				}) {
					return
				}
			}
		})
	}
	wg.Wait()
	done := map[ident.ID][]ident.ID{}
	for i := range rows {
		if open[i] == 0 {
			done[rows[i].Bucket] = append(done[rows[i].Bucket], rows[i].Blob.ID)
		}
	}
	for bucket, blobs := range done {
		pctx, cancel := context.WithTimeout(ctx, proposeTimeout)
		_, err := w.deps.Router.GroupCommand(pctx, g, &metadata.Command{Op: metadata.OpGarbageDone, Bucket: bucket, Blobs: blobs})
		cancel()
		if err != nil {
			w.failed(ctx, "garbage_done", err)
			continue
		}
		w.Metrics.GarbageBlobs.Add(int64(len(blobs)))
		for _, b := range blobs {
			delete(w.garbage.m, b)
		}
	}
}

// remove deletes shards on one drive and calls answered for each that is gone; false when the drive does not answer.
func (w *Worker) remove(ctx context.Context, d *cluster.Drive, list []removal, answered func(*removal)) bool {
	refs := make([]shard.Ref, len(list))
	for i := range list {
		refs[i] = list[i].ref
	}
	ep, _ := w.deps.Dialer.Endpoint(d.Node, 0)
	dctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	errs := ep.Delete(dctx, refs)
	cancel()
	var bad error
	for i, err := range errs {
		switch {
		case err == nil, oerr.Is(err, oerr.ShardMissing), oerr.Is(err, oerr.WrongIncarnation):
			answered(&list[i])
		case bad == nil || unfit(err):
			bad = err
		}
	}
	if ctx.Err() != nil {
		return false
	}
	w.removals.note(d.ID, bad)
	switch {
	case oerr.Is(bad, oerr.StaleEpoch):
		w.refresh(ctx)
	case bad != nil && !expected(bad):
		w.failed(ctx, "garbage", bad)
	}
	return !unfit(bad)
}

// place is where a shard of a garbage blob may be.
type place struct {
	drive *cluster.Drive
	index uint8
}

// places lists them. Of an abandoned blob only the id may be known (K is 0): then any drive may have any of its shards.
func places(v *cluster.View, b *metadata.Blob) []place {
	var out []place
	if b.K > 0 {
		for index := range b.K + b.M {
			p := place{index: index}
			if int(b.PG) < len(v.PGs) && int(index) < len(v.PGs[b.PG].Drives) {
				p.drive = v.Drives[v.PGs[b.PG].Drives[index]]
			}
			out = append(out, p)
		}
		return out
	}
	n := v.Profile.N()
	for i := range v.PGs {
		n = max(n, v.PGs[i].Profile.N())
	}
	for _, d := range v.Drives {
		for index := range uint8(n) {
			out = append(out, place{d, index})
		}
	}
	return out
}

// see remembers a g/ row and says whether the grace has passed since this leader first saw it, in monotonic time:
// running GETs finish. A row for which there is no room waits until others are gone.
func (w *Worker) see(g ident.Group, v *cluster.View, b *metadata.Blob) (sight, bool) {
	s, known := w.garbage.m[b.ID]
	if !known {
		if len(w.garbage.m) >= maxSights {
			return s, false
		}
		s.first = time.Now()
	}
	s.group, s.round = g, w.garbage.round
	if int(b.PG) < len(v.PGs) && s.epoch != v.PGs[b.PG].Epoch { // its shards may be elsewhere now
		s.epoch, s.answered = v.PGs[b.PG].Epoch, 0
	}
	w.garbage.m[b.ID] = s
	return s, time.Since(s.first) >= w.cfg.GarbageGrace
}
