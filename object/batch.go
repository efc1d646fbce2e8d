package object

import (
	"sync"
	"time"
)

// batches calls f with what arrives on in, up to maxBatch at a time and batchDelay after the first of a batch, until
// done. f may change the slice.
func batches[T any](done <-chan struct{}, in <-chan T, f func([]T)) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		var batch []T
		select {
		case v := <-in:
			batch = append(batch, v)
		case <-done:
			return
		}
		timer.Reset(batchDelay)
		for full := false; !full && len(batch) < maxBatch; {
			select {
			case v := <-in:
				batch = append(batch, v)
			case <-timer.C:
				full = true
			case <-done:
				return
			}
		}
		timer.Stop()
		f(batch)
	}
}

// recentMap remembers keys for badForget, at most badMemory of them.
type recentMap struct {
	mu sync.Mutex
	m  map[badKey]time.Time
}

// first reports whether k was not seen within badForget, and remembers it.
func (l *recentMap) first(k badKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.m[k]; ok && now.Sub(at) < badForget {
		return false
	}
	if l.m == nil || len(l.m) >= badMemory {
		l.m = make(map[badKey]time.Time) // forgetting costs a report too many, no more
	}
	l.m[k] = now
	return true
}
