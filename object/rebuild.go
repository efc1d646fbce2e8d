package object

import (
	"objstore/erasure"
	"objstore/internal/oerr"
)

// takeRebuild gets the memory for rebuilding. It has a gate of its own: fetches that hold reading memory wait here, and
// those that hold this memory wait for nothing but drives.
func (f *fetch) takeRebuild() error {
	if f.rebuild != nil {
		return nil
	}
	var err error
	f.rebuild, err = f.e.take(f.ctx, f.e.admit.rebuild, f.src.g.N()*f.size())
	return err
}

// finish rebuilds what is missing.
func (f *fetch) finish() error {
	n, k := f.src.g.N(), int(f.src.g.K)
	want := make([]bool, erasure.MaxShards)[:n]
	missing := false
	for i := range k {
		if f.reads[i].needed && !f.reads[i].served() {
			want[i], missing = true, true
		}
	}
	if !missing {
		return nil
	}
	if k == 1 { // another copy of the same bytes
		for i := range f.reads {
			if f.reads[i].state == readGood {
				f.reads[0].data, f.reads[0].lo = f.reads[i].data, f.reads[i].lo
				return nil
			}
		}
	}
	if err := f.takeRebuild(); err != nil {
		return err
	}
	cells := make([][]byte, n)
	hold := false
	for i := range f.reads {
		switch r := &f.reads[i]; {
		case r.state == readGood && f.whole(r):
			cells[i] = r.data
		case want[i] && r.state == readOpen: // its own region may still be written to
			cells[i] = f.region(f.rebuild, i)[:0]
			hold = true
		case want[i]:
			cells[i] = f.region(f.main, f.mainRegion(i))[:0]
		}
	}
	if err := f.src.codec.Reconstruct(cells, want); err != nil {
		return oerr.E("object.rebuild", oerr.Internal, err)
	}
	for i := range k {
		if want[i] {
			f.reads[i].data, f.reads[i].lo = cells[i], f.lo
		}
	}
	if !hold { // a slow client shall not keep the memory for rebuilding
		f.rebuild.release()
		f.rebuild = nil
	}
	f.e.d.OnEvent(Event{Kind: EventDegraded, Blob: f.src.blob.ID})
	return nil
}

// region is a region of a lease, with no room beyond it.
func (f *fetch) region(l *lease, i int) []byte {
	size := f.size()
	return l.buf.B[i*size : (i+1)*size : (i+1)*size]
}

// mainRegion is the region of the main lease that belongs to needed shard i.
func (f *fetch) mainRegion(i int) int {
	region := 0
	for j := range i {
		if f.reads[j].needed {
			region++
		}
	}
	return region
}
