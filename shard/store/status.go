package store

import (
	"sync/atomic"
	"time"

	"objstore/internal/ident"
)

// Status is one drive as an operator sees it.
type Status struct {
	Drive       ident.Drive       `json:"drive"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Path        string            `json:"path"`
	State       string            `json:"state"` // ok, full, fenced, failed
	Cause       string            `json:"cause,omitempty"`
	Capacity    int64             `json:"capacity"` // bytes; of the file system
	Free        int64             `json:"free"`     // bytes
	Reserve     int64             `json:"reserve"`  // bytes
	Ballast     int64             `json:"ballast"`  // bytes as formatted
	Used        int64             `json:"used"`     // bytes of sealed shards, headers and footers included
	Shards      int64             `json:"shards"`
	DirectIO    bool              `json:"direct_io"`
	Stuck       int               `json:"stuck"` // operations that have waited for the device for StuckAfter
	Writers     int               `json:"writers"`
	MinEpoch    uint64            `json:"min_epoch"`
}

// Status returns every drive's, in the order of the configuration.
func (s *Store) Status() []Status {
	out := make([]Status, 0, len(s.order))
	for _, d := range s.order {
		out = append(out, d.status())
	}
	return out
}

func (d *drive) status() Status {
	st := Status{Drive: d.cfg.ID, Incarnation: d.cfg.Incarnation, Path: d.cfg.Path, State: "ok", DirectIO: d.direct,
		Ballast: d.super.Ballast, MinEpoch: d.minEpoch.Load()}
	if p := d.failed.Load(); p != nil {
		st.State, st.Cause = "failed", (*p).Error()
		return st
	}
	c := d.index.totals()
	st.Shards, st.Used, st.Writers = c.shards, c.bytes, d.claims.len()
	old := time.Now().Add(-d.limits.StuckAfter)
	st.Stuck = d.reads.older(old) + d.writes.older(old)
	for _, since := range []int64{d.commit.busySince.Load(), d.filer.busySince.Load()} {
		if since != 0 && since < old.UnixNano() {
			st.Stuck++
		}
	}
	var err error
	st.Capacity, st.Free, st.Reserve, err = d.space.usage()
	switch cause := d.fenceCause(); {
	case cause != nil:
		st.State, st.Cause = "fenced", cause.Error()
	case err != nil:
		st.State, st.Cause = "failed", err.Error()
	case st.Free < st.Reserve:
		st.State = "full"
	}
	return st
}

// latencyBounds are the upper bounds of the latency buckets, in seconds; one more bucket is for what is slower.
var latencyBounds = [...]float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}

// LatencyBounds returns the upper bounds of the buckets of Latency, in seconds.
func LatencyBounds() []float64 { return append([]float64(nil), latencyBounds[:]...) }

// Latency is a histogram: Buckets[i] counts what took at most LatencyBounds()[i] (and more than the one before), the
// last bucket the rest.
type Latency struct {
	Buckets [len(latencyBounds) + 1]int64
	Sum     time.Duration
}

type latency struct {
	buckets [len(latencyBounds) + 1]atomic.Int64
	sum     atomic.Int64
}

func (l *latency) observe(t time.Duration) {
	i, s := 0, t.Seconds()
	for i < len(latencyBounds) && s > latencyBounds[i] {
		i++
	}
	l.buckets[i].Add(1)
	l.sum.Add(int64(t))
}

func (l *latency) snapshot() (out Latency) {
	for i := range l.buckets {
		out.Buckets[i] = l.buckets[i].Load()
	}
	out.Sum = time.Duration(l.sum.Load())
	return out
}

// Metrics are one drive's counters since Open.
type Metrics struct {
	Drive           ident.Drive
	Reads           int64 // shard reads answered
	ReadBytes       int64
	DeviceReads     int64 // pieces that did not come from the page cache
	ReadErrors      int64 // opens and reads that failed
	ShardsWritten   int64 // acknowledged
	WrittenBytes    int64 // headers and footers included
	CopiedBytes     int64 // appended data that could not be written from where it was
	Deletes         int64
	Syncs           int64 // fdatasync and fsync
	Batches         int64 // group commits
	BatchOps        int64 // records and tombstones in them
	PunchedBytes    int64
	SegmentsRemoved int64
	Checkpoints     int64
	Stuck           int
	Fenced          bool
	ReadLatency     Latency
	WriteLatency    Latency // from Create to the acknowledgement
	CommitLatency   Latency // of one group commit
}

type meters struct {
	reads, readBytes, deviceReads, readErrors         atomic.Int64
	shardsWritten, writtenBytes, copiedBytes, deletes atomic.Int64
	syncs, batches, batchOps                          atomic.Int64
	punched, segmentsRemoved, checkpoints             atomic.Int64
	readLatency, writeLatency, commitLatency          latency
}

// Metrics returns every drive's counters, in the order of the configuration.
func (s *Store) Metrics() []Metrics {
	out := make([]Metrics, 0, len(s.order))
	for _, d := range s.order {
		m := &d.met
		out = append(out, Metrics{Drive: d.cfg.ID, Reads: m.reads.Load(), ReadBytes: m.readBytes.Load(),
			DeviceReads: m.deviceReads.Load(), ReadErrors: m.readErrors.Load(), ShardsWritten: m.shardsWritten.Load(),
			WrittenBytes: m.writtenBytes.Load(), CopiedBytes: m.copiedBytes.Load(), Deletes: m.deletes.Load(),
			Syncs: m.syncs.Load(), Batches: m.batches.Load(), BatchOps: m.batchOps.Load(), PunchedBytes: m.punched.Load(),
			SegmentsRemoved: m.segmentsRemoved.Load(), Checkpoints: m.checkpoints.Load(), Fenced: d.fenceCause() != nil,
			Stuck:       d.reads.older(time.Now().Add(-d.limits.StuckAfter)) + d.writes.older(time.Now().Add(-d.limits.StuckAfter)),
			ReadLatency: m.readLatency.snapshot(), WriteLatency: m.writeLatency.snapshot(), CommitLatency: m.commitLatency.snapshot()})
	}
	return out
}
