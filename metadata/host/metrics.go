package host

import (
	"sync/atomic"
	"time"
)

// SyncBuckets are the upper bounds of the histogram of log syncs; a last bucket takes the rest.
var syncBuckets = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond,
	2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second,
}

type metrics struct {
	proposals, dropped, applied, reads, readRounds, elections, stopped atomic.Uint64
	logBytes, logBatches, syncs, syncNanos                             atomic.Uint64
	syncHist                                                           [len(syncBuckets) + 1]atomic.Uint64
	batchesIn, batchesOut, bytesIn, bytesOut, badBatches               atomic.Uint64
	rejected, sendDropped                                              atomic.Uint64
	snapshotsOut, snapshotsIn, snapshotsFailed, truncations            atomic.Uint64
	hashChecks, hashMismatches                                         atomic.Uint64
	clockOffset                                                        atomic.Int64
}

func (m *metrics) sync(d time.Duration) {
	m.syncs.Add(1)
	m.syncNanos.Add(uint64(d))
	i := 0
	for i < len(syncBuckets) && d > syncBuckets[i] {
		i++
	}
	m.syncHist[i].Add(1)
}

// Metrics are counters since the start, all of them monotonic but ClockOffset. Bytes and batches of messages count
// each direction at this host.
type Metrics struct {
	Proposals, Dropped uint64 // accepted by the loop; of those refused by raft
	Applied            uint64 // entries
	Reads, ReadRounds  uint64 // reads answered by ReadIndex, and rounds it took
	Elections          uint64 // won here
	Stopped            uint64 // replicas stopped
	LogBytes           uint64 // written to the log store
	LogBatches, Syncs  uint64
	SyncTime           time.Duration // sum
	SyncBuckets        []SyncBucket  // cumulative
	BatchesIn, BytesIn uint64
	BatchesOut         uint64
	BytesOut           uint64
	BadBatches         uint64 // could not be decoded
	Rejected           uint64 // calls and batches refused because a queue was full
	SendDropped        uint64 // batches the sender refused
	SnapshotsOut       uint64
	SnapshotsIn        uint64
	SnapshotsFailed    uint64
	Truncations        uint64
	HashChecks         uint64
	HashMismatches     uint64
	ClockOffset        time.Duration // median of the peers' clocks minus ours
}

// SyncBucket counts syncs that took at most Le; Le 0 stands for the rest.
type SyncBucket struct {
	Le    time.Duration
	Count uint64
}

// Metrics reads all counters.
func (h *Host) Metrics() Metrics {
	m := &h.metrics
	out := Metrics{
		Proposals: m.proposals.Load(), Dropped: m.dropped.Load(), Applied: m.applied.Load(), Reads: m.reads.Load(),
		ReadRounds: m.readRounds.Load(), Elections: m.elections.Load(), Stopped: m.stopped.Load(), LogBytes: m.logBytes.Load(),
		LogBatches: m.logBatches.Load(), Syncs: m.syncs.Load(), SyncTime: time.Duration(m.syncNanos.Load()),
		BatchesIn: m.batchesIn.Load(), BytesIn: m.bytesIn.Load(), BatchesOut: m.batchesOut.Load(), BytesOut: m.bytesOut.Load(),
		BadBatches: m.badBatches.Load(), Rejected: m.rejected.Load(), SendDropped: m.sendDropped.Load(),
		SnapshotsOut: m.snapshotsOut.Load(), SnapshotsIn: m.snapshotsIn.Load(), SnapshotsFailed: m.snapshotsFailed.Load(),
		Truncations: m.truncations.Load(), HashChecks: m.hashChecks.Load(), HashMismatches: m.hashMismatches.Load(),
		ClockOffset: time.Duration(m.clockOffset.Load()) * time.Millisecond,
	}
	sum := uint64(0)
	for i := range m.syncHist {
		sum += m.syncHist[i].Load()
		b := SyncBucket{Count: sum}
		if i < len(syncBuckets) {
			b.Le = syncBuckets[i]
		}
		out.SyncBuckets = append(out.SyncBuckets, b)
	}
	return out
}
