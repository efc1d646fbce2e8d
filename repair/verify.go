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

// verifyParallel is how many shards a node has checked at a time.
const verifyParallel = 4

// passPos is how far the verify pass of a group has come.
type passPos struct {
	after string
	next  time.Time // monotonic: when the next pass may begin; zero while one is running
}

// verifyRound goes over each group whose pass is due: does every reference have its shards, and are they whole? A pass
// that is cut short goes on where it was.
func (w *Worker) verifyRound(ctx context.Context) time.Duration {
	var took time.Duration
	for _, g := range w.deps.Leads() {
		w.mu.Lock()
		pos := w.mu.pass[g]
		w.mu.Unlock()
		if !pos.next.IsZero() && time.Now().Before(pos.next) {
			continue
		}
		pos.next = time.Time{}
		for pos.next.IsZero() && slices.Contains(w.deps.Leads(), g) {
			a, err := w.query(ctx, g, &metadata.Query{Op: metadata.QueryBlobs, After: pos.after, Max: pageRows}, &took)
			if err != nil || !w.verifyPage(ctx, g, a.Blobs) {
				break
			}
			pos = passPos{after: a.Next}
			if !a.Truncated {
				pos = passPos{next: time.Now().Add(w.cfg.VerifyInterval)}
			}
			w.mu.Lock()
			w.mu.pass[g] = pos
			w.mu.Unlock()
		}
	}
	return min(max(w.cfg.VerifyInterval, roundInterval), idleInterval)
}

// verifyPage checks all shards of blobs; false when ctx ended before.
func (w *Worker) verifyPage(ctx context.Context, g ident.Group, blobs []metadata.BlobRef) bool {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, verifyParallel)
	for i := range blobs {
		b := &blobs[i]
		geo, err := geometry(&b.Blob)
		if err != nil {
			w.failed(ctx, "verify", err)
			continue
		}
		for index := range geo.N() {
			if b.Blob.Missing&(1<<index) != 0 {
				continue // there is a repair row already
			}
			if !w.pace(ctx, geo.ShardLen()) {
				return false
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if s := w.Check(ctx, b, uint8(index)); s == shard.StateMissing || s == shard.StateCorrupt {
					w.Metrics.BadShards.Add(1)
					w.send(ctx, outcome{group: g, bucket: b.Bucket,
						report: &metadata.Report{Key: b.Key, Version: b.Version, Blob: b.Blob.ID, Index: uint8(index)}})
				}
			})
		}
	}
	return ctx.Err() == nil
}

// Check reads one shard of a blob from its drive and says what state it is in; unknown when the drive did not answer.
func (w *Worker) Check(ctx context.Context, b *metadata.BlobRef, index uint8) shard.State {
	info, err := w.CheckInfo(ctx, b, index)
	w.Metrics.VerifiedShards.Add(1)
	return w.Judge(b, index, info, err)
}

// Judge turns a drive's answer to CheckInfo into a state.
func (w *Worker) Judge(b *metadata.BlobRef, index uint8, info shard.Info, err error) shard.State {
	switch {
	case oerr.Is(err, oerr.ShardMissing), oerr.Is(err, oerr.WrongIncarnation):
		return shard.StateMissing
	case oerr.IsCorrupt(err):
		return shard.StateCorrupt
	case err != nil:
		return shard.StateUnknown
	case info.State == shard.StateOK && int(index) < len(b.Blob.Digests) && info.Digest != b.Blob.Digests[index]:
		return shard.StateCorrupt
	}
	return info.State
}

// CheckInfo is Check with all that the drive says.
func (w *Worker) CheckInfo(ctx context.Context, b *metadata.BlobRef, index uint8) (shard.Info, error) {
	d := w.drive(&b.Blob, index)
	if d == nil || d.State == cluster.DriveRemoved || !w.deps.Alive(d.Node) {
		return shard.Info{}, oerr.Errorf("repair.check", oerr.Unavailable, "the drive of shard %d is not reachable", index)
	}
	limit := callTimeout
	if geo, err := geometry(&b.Blob); err == nil {
		limit = byLength(callTimeout, geo.ShardLen())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ep, _ := w.deps.Dialer.Endpoint(d.Node, 0)
	return ep.Stat(ctx, w.ref(&b.Blob, index, d), true)
}

// Drive returns the drive of a blob's shard, nil if the map has none.
func (w *Worker) Drive(b *metadata.Blob, index uint8) *cluster.Drive { return w.drive(b, index) }

// Report proposes that shards found bad be repaired.
func (w *Worker) Report(ctx context.Context, bucket ident.ID, reports []metadata.Report) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	for part := range slices.Chunk(reports, batchRows) {
		_, err := w.deps.Router.CommandByID(ctx, bucket, &metadata.Command{Op: metadata.OpReportBad, Key: part[0].Key, Reports: part})
		if err != nil {
			return err
		}
	}
	return nil
}

// pace waits so that the pass stays below its rate; false when ctx ended. Each shard costs a block at least.
func (w *Worker) pace(ctx context.Context, bytes int64) bool {
	if w.cfg.VerifyRate <= 0 {
		return ctx.Err() == nil
	}
	bytes = max(bytes, shard.BlockSize)
	timer := time.NewTimer(time.Duration(float64(bytes) / float64(w.cfg.VerifyRate) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
