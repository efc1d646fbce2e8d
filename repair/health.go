package repair

import (
	"sync"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// health remembers which drives do not answer one kind of work, so that a stuck drive costs one wave of deadlines and
// then one probe in a while, never all the slots. It holds at most one entry for each drive that ails.
type health struct {
	mu     sync.Mutex
	ailing map[ident.Drive]*ailment
}

type ailment struct {
	until  time.Time // nobody asks before
	raised time.Time // when delay was last doubled
	delay  time.Duration
}

// admit reports whether the drive may be asked now. Of an ailing drive it lets one caller through in each delay.
func (h *health) admit(d ident.Drive) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.ailing[d]
	if a == nil {
		return true
	}
	now := time.Now()
	if now.Before(a.until) {
		return false
	}
	a.until = now.Add(a.delay)
	return true
}

// well reports whether the drive answered when it was last asked.
func (h *health) well(d ident.Drive) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ailing[d] == nil
}

// note takes in what came of a call. Calls that failed together lengthen the hold once.
func (h *health) note(d ident.Drive, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !unfit(err) {
		delete(h.ailing, d)
		return
	}
	if h.ailing == nil {
		h.ailing = map[ident.Drive]*ailment{}
	}
	a := h.ailing[d]
	if a == nil {
		a = &ailment{}
		h.ailing[d] = a
	}
	now := time.Now()
	if now.Sub(a.raised) >= a.delay {
		a.delay = min(max(2*a.delay, holdMin), holdMax)
		a.raised = now
	}
	a.until = now.Add(a.delay)
}

func (h *health) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.ailing)
}

// unfit says whether an error is about the drive or its node, not about one shard.
func unfit(err error) bool {
	switch {
	case err == nil:
		return false
	case oerr.Is(err, oerr.Unavailable), oerr.Is(err, oerr.DeadlineExceeded), oerr.Is(err, oerr.DriveFenced), oerr.Is(err, oerr.DriveFull):
		return true
	}
	return false
}

// expected says whether an error is part of a cluster's life: the row waits, and nobody needs to be told.
func expected(err error) bool {
	switch oerr.KindOf(err) {
	case oerr.Unavailable, oerr.DeadlineExceeded, oerr.Canceled, oerr.DriveFenced, oerr.DriveFull, oerr.Busy, oerr.InProgress,
		oerr.StaleEpoch, oerr.WrongIncarnation, oerr.Closed, oerr.OutcomeUnknown, oerr.NotLeader, oerr.NoSuchBucket:
		return true
	}
	return false
}
