package erasure

import (
	"fmt"
	"iter"
)

// MaxShards is the largest number of shards of a blob: bitmaps of shards are 32 bits wide.
const MaxShards = 32

// Validate refuses profiles that no geometry and no codec exists for.
func (p Profile) Validate() error {
	if p.K == 0 || p.N() > MaxShards {
		return fmt.Errorf("erasure: profile %s: need 1 to %d shards with at least one data shard", p, MaxShards)
	}
	return nil
}

// StoredGeometry returns the geometry of a blob as its row records it: the cell size is read, never derived again.
func StoredGeometry(p Profile, bodyLen int64, cellSize uint32) (Geometry, error) {
	g, err := NewGeometry(p, bodyLen)
	if err != nil {
		return Geometry{}, err
	}
	if cellSize == 0 || cellSize%smallCell != 0 || cellSize > maxCell {
		return Geometry{}, fmt.Errorf("erasure: cell size of %d bytes: need a multiple of %d up to %d", cellSize, smallCell, maxCell)
	}
	g.CellSize = int(cellSize)
	return g, nil
}

const maxCell = 16 << 20 // bytes; far above what version 1 writes

// Piece is a run of body bytes that lies in one cell.
type Piece struct {
	Shard    int   // 0..k-1
	ShardOff int64 // bytes from the shard's start
	Len      int   // bytes
}

// Plan yields the pieces of body bytes [off, off+n) in body order. The range must lie within the body.
func (g Geometry) Plan(off, n int64) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		for end := off + n; off < end; {
			stripe := off / g.StripeSize()
			in, cell := off-stripe*g.StripeSize(), int64(g.Cell(stripe))
			shard, cellOff := in/cell, in%cell
			run := min(cell-cellOff, end-off, g.StripeBody(stripe)-in)
			if !yield(Piece{Shard: int(shard), ShardOff: stripe*int64(g.CellSize) + cellOff, Len: int(run)}) {
				return
			}
			off += run
		}
	}
}

// ShardRange returns the smallest range [lo, hi) of data shard i's bytes that holds all of its pieces of body bytes
// [off, off+n); lo == hi when the shard holds none of them.
func (g Geometry) ShardRange(i int, off, n int64) (lo, hi int64) {
	if n <= 0 {
		return 0, 0
	}
	first, last := off/g.StripeSize(), (off+n-1)/g.StripeSize()
	// Only the outer two stripes at each end can be cut or empty for this shard; those between are whole cells.
	for s := first; s <= last; s++ {
		if s > first+1 && s < last-1 {
			s = last - 1
		}
		base, cell := s*g.StripeSize(), int64(g.Cell(s))
		from := max(off-base, int64(i)*cell)
		to := min(off+n-base, int64(i+1)*cell, g.StripeBody(s))
		if from >= to {
			continue
		}
		start := s*int64(g.CellSize) - int64(i)*cell
		if lo == hi {
			lo = start + from
		}
		hi = start + to
	}
	return lo, hi
}
