package object

import (
	"time"

	"objstore/internal/ident"
	"objstore/metadata"
)

// Limits of the two batching queues. What does not fit is dropped: repair and the next reader find it again.
const (
	maxLandings = 1024
	maxReports  = 1024
	maxBatch    = 128
	batchDelay  = 5 * time.Millisecond // from the first of a batch
	badMemory   = 4096                 // reports remembered, so that one bad shard is not reported by each read
	badForget   = 30 * time.Second
)

// landing is a late shard to announce.
type landing struct {
	bucket ident.ID
	metadata.Landing
}

func (e *Engine) announce(bucket ident.ID, l metadata.Landing) {
	e.d.OnEvent(Event{Kind: EventLanded, Blob: l.Blob, Index: l.Index, Drive: l.Drive})
	select {
	case e.land <- landing{bucket, l}:
	default:
	}
}

// landLoop proposes landings, those of one bucket together.
func (e *Engine) landLoop() {
	defer e.wg.Done()
	batches(e.ctx.Done(), e.land, func(batch []landing) {
		for len(batch) > 0 {
			cmd := &metadata.Command{Op: metadata.OpLanded, Key: batch[0].Key}
			bucket := batch[0].bucket
			cmd.Landings = append(cmd.Landings, batch[0].Landing)
			rest := batch[:0]
			for _, l := range batch[1:] {
				if l.bucket == bucket && e.sameSpan(bucket, cmd.Key, l.Key) {
					cmd.Landings = append(cmd.Landings, l.Landing)
				} else {
					rest = append(rest, l)
				}
			}
			batch = rest
			e.commandByID(e.ctx, bucket, cmd) // best effort: the repair row stays, and repair asks the drive first
		}
	})
}

func (e *Engine) sameSpan(bucket ident.ID, a, b string) bool {
	bk := e.d.Cluster.View().ByID[bucket]
	return bk != nil && bk.SpanOf(a) == bk.SpanOf(b)
}

// badShard is a shard that was read and is missing or wrong.
type badShard struct {
	bucket string
	metadata.Report
}

type badKey struct {
	blob  ident.ID
	index uint8
}

// badShards remembers what was reported lately.
type badShards struct {
	queue chan badShard
	seen  recentMap
}

// reportBad makes a repair row for a shard, once in a while.
func (e *Engine) reportBad(src *source, i int, err error) {
	e.d.OnEvent(Event{Kind: EventShardBad, Blob: src.blob.ID, Index: uint8(i), Drive: src.targets[i].ref.Drive, Err: err})
	if !e.bad.seen.first(badKey{src.blob.ID, uint8(i)}, time.Now()) {
		return
	}
	select {
	case e.bad.queue <- badShard{src.bucket, metadata.Report{Key: src.key, Version: src.version, Blob: src.blob.ID, Index: uint8(i)}}:
	default:
	}
}

// reportLoop proposes reports, those of one bucket together.
func (e *Engine) reportLoop() {
	defer e.wg.Done()
	batches(e.ctx.Done(), e.bad.queue, func(batch []badShard) {
		for len(batch) > 0 {
			cmd := &metadata.Command{Op: metadata.OpReportBad, Key: batch[0].Key}
			bucket := batch[0].bucket
			cmd.Reports = append(cmd.Reports, batch[0].Report)
			rest := batch[:0]
			for _, b := range batch[1:] {
				if b.bucket == bucket && e.sameSpanByName(bucket, cmd.Key, b.Key) {
					cmd.Reports = append(cmd.Reports, b.Report)
				} else {
					rest = append(rest, b)
				}
			}
			batch = rest
			e.command(e.ctx, bucket, cmd) // best effort: the next read after badForget reports again
		}
	})
}

func (e *Engine) sameSpanByName(bucket, a, b string) bool {
	bk := e.d.Cluster.View().Buckets[bucket]
	return bk != nil && bk.SpanOf(a) == bk.SpanOf(b)
}
