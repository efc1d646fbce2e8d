package object

import (
	"slices"
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// minSamples is how many latencies must be known before they are believed.
const minSamples = 8

// latency estimates the recent 99th percentile of one kind of request to one drive: the second largest of the last 64
// samples, brought up to date every 8. Not safe for concurrent use.
type latency struct {
	ring [64]time.Duration
	n    int // samples ever
	p99  time.Duration
}

func (l *latency) add(d time.Duration) {
	l.ring[l.n%len(l.ring)] = d
	l.n++
	if l.n%8 != 0 {
		return
	}
	var first, second time.Duration
	for _, v := range l.ring[:min(l.n, len(l.ring))] {
		if v > first {
			first, second = v, first
		} else if v > second {
			second = v
		}
	}
	l.p99 = second
}

// limit returns 4 × p99 within [lo, hi], or cold while too little is known.
func (l *latency) limit(lo, hi, cold time.Duration) time.Duration {
	if l.n < minSamples {
		return cold
	}
	return max(lo, min(hi, 4*l.p99))
}

// latencyClass tells requests apart whose durations cannot be compared.
type latencyClass uint8

const (
	latencyShard latencyClass = iota // create, append and commit of a shard that is one slab
	latencyTail                      // end of a stream to its acknowledgement
	latencyRead                      // one read
	latencyClasses
)

// driveStat is what this process has seen of one drive.
type driveStat struct {
	mu struct {
		sync.Mutex
		latency [latencyClasses]latency
		late    int       // streams that outlived their put and have not ended
		slow    int       // late reads in a row
		suspect time.Time // not asked first before this
		full    time.Time // not chosen for new blobs before this
	}
}

// took records a success.
func (s *driveStat) took(class latencyClass, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.latency[class].add(d)
	s.mu.slow, s.mu.suspect = 0, time.Time{}
}

// failed records an error of a request.
func (s *driveStat) failed(err error, now time.Time) {
	kind := oerr.KindOf(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case oerr.Unavailable, oerr.DeadlineExceeded, oerr.DriveFenced:
		s.mu.suspect = now.Add(suspectFor)
	case oerr.DriveFull:
		s.mu.full = now.Add(5 * suspectFor)
	}
}

// wasLate records a read that was hedged. One may be chance; three in a row make the drive suspect.
func (s *driveStat) wasLate(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.slow++; s.mu.slow >= 3 {
		s.mu.suspect = now.Add(suspectFor)
	}
}

// outlived counts streams that go on after their put.
func (s *driveStat) outlived(delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.late += delta
}

func (s *driveStat) isSuspect(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.mu.suspect) || s.mu.late > 0
}

func (s *driveStat) isFull(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.mu.full)
}

// limit is how long to wait for one request before something is done about it. A drive that already keeps others
// waiting gets the minimum.
func (s *driveStat) limit(class latencyClass, lo, hi, cold time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.late > 0 {
		return lo
	}
	return s.mu.latency[class].limit(lo, hi, cold)
}

// driveStats is all drives seen. The zero value is ready.
type driveStats struct {
	mu sync.RWMutex
	m  map[ident.Drive]*driveStat
}

func (d *driveStats) get(id ident.Drive) *driveStat {
	d.mu.RLock()
	s := d.m[id]
	d.mu.RUnlock()
	if s != nil {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s = d.m[id]; s == nil {
		if d.m == nil {
			d.m = make(map[ident.Drive]*driveStat)
		}
		s = &driveStat{}
		d.m[id] = s // bounded by the drives that group 0 ever handed out
	}
	return s
}

// Latency is the recent 99th percentile of each kind of request to a drive, for metrics; 0 when not known.
type Latency struct {
	Drive             ident.Drive
	Shard, Tail, Read time.Duration
	Late              int // streams that outlived their put and have not ended
	Suspect           bool
}

// Latencies returns what is known of each drive, in order of their numbers.
func (e *Engine) Latencies() []Latency {
	e.drives.mu.RLock()
	defer e.drives.mu.RUnlock()
	now := time.Now()
	out := make([]Latency, 0, len(e.drives.m))
	for id, s := range e.drives.m {
		s.mu.Lock()
		out = append(out, Latency{Drive: id, Shard: s.mu.latency[latencyShard].p99, Tail: s.mu.latency[latencyTail].p99,
			Read: s.mu.latency[latencyRead].p99, Late: s.mu.late, Suspect: now.Before(s.mu.suspect)})
		s.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Latency) int { return int(a.Drive) - int(b.Drive) })
	return out
}
