package object

import (
	"sync"

	"objstore/internal/ident"
)

// registry knows the blobs this process is writing: from before their first byte until their commit has an outcome.
type registry struct {
	mu sync.Mutex
	m  map[uint64]ident.ID // put number → blob
}

func (r *registry) add(put uint64, blob ident.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = make(map[uint64]ident.ID)
	}
	r.m[put] = blob // bounded by the puts that were admitted
}

func (r *registry) remove(put uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, put)
}

// Disowned reports whether this process is not, or no longer, writing the blob that carries (start, put) in its headers.
// Orphan collection asks it before it proposes to abandon the blob; the answer for another start id is true, because
// that process is gone when this one runs in its place.
func (e *Engine) Disowned(start ident.ID, put uint64, blob ident.ID) bool {
	if start != e.cfg.StartID {
		return true
	}
	e.flight.mu.Lock()
	defer e.flight.mu.Unlock()
	return e.flight.m[put] != blob
}

// InFlight returns the number of blobs this process is writing.
func (e *Engine) InFlight() int {
	e.flight.mu.Lock()
	defer e.flight.mu.Unlock()
	return len(e.flight.m)
}
