package erasure

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/reedsolomon"
)

// ErrTooFew says that fewer than k cells of a stripe were handed in, so that nothing can be rebuilt from them.
var ErrTooFew = errors.New("erasure: fewer cells than data shards")

// Codec computes parity and rebuilds cells for one profile. It is safe for concurrent use.
//
// The code is the systematic Vandermonde one of klauspost/reedsolomon over GF(2^8), polynomial 0x11d; it is part of the
// disk format, and SelfTest holds it still. It works byte by byte: any run of equal length and equal offset out of the
// cells of one stripe, or of several, may be encoded or rebuilt by itself.
type Codec struct {
	p  Profile
	rs reedsolomon.Encoder // nil when k is 1 or m is 0: parity is a copy, or there is none
}

// NewCodec returns the codec of p.
func NewCodec(p Profile) (*Codec, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	c := &Codec{p: p}
	if p.K == 1 || p.M == 0 {
		return c, nil
	}
	// One goroutine: the caller is one of many concurrent requests, each core encodes 2+2 at 50 GB/s, and splitting a
	// 1 MiB cell over goroutines costs more than it gains.
	rs, err := reedsolomon.New(int(p.K), int(p.M), reedsolomon.WithMaxGoroutines(1), reedsolomon.WithInversionCache(true))
	if err != nil {
		return nil, fmt.Errorf("erasure: codec for %s: %w", p, err)
	}
	c.rs = rs
	return c, nil
}

// Profile returns the profile the codec was made for.
func (c *Codec) Profile() Profile { return c.p }

// Encode computes the parity cells, cells[k:], in place from the data cells, cells[:k]. All have one length > 0.
func (c *Codec) Encode(cells [][]byte) error {
	if err := c.check(cells); err != nil {
		return err
	}
	for i, cell := range cells {
		if len(cell) == 0 || len(cell) != len(cells[0]) {
			return fmt.Errorf("erasure: encode %s: cell %d has %d bytes, expected %d", c.p, i, len(cell), len(cells[0]))
		}
	}
	if c.rs == nil {
		for _, parity := range cells[c.p.K:] {
			copy(parity, cells[0])
		}
		return nil
	}
	return c.rs.Encode(cells)
}

// Reconstruct rebuilds the cells i with want[i] that are missing, which is to say of length 0. Each of them must have
// room for a cell in its capacity; it is filled in place and comes back with its full length. Missing cells that are
// not wanted stay as they are, present ones are never changed. The cells handed in must have been checked: the codec
// makes garbage out of garbage.
func (c *Codec) Reconstruct(cells [][]byte, want []bool) error {
	if err := c.check(cells); err != nil {
		return err
	}
	if len(want) != len(cells) {
		return fmt.Errorf("erasure: reconstruct %s: %d wishes for %d cells", c.p, len(want), len(cells))
	}
	size, present, source := 0, 0, -1
	for i, cell := range cells {
		if len(cell) == 0 {
			continue
		}
		if present++; source < 0 {
			size, source = len(cell), i
		}
		if len(cell) != size {
			return fmt.Errorf("erasure: reconstruct %s: cell %d has %d bytes, expected %d", c.p, i, len(cell), size)
		}
	}
	missing := 0
	for i, cell := range cells {
		if !want[i] || len(cell) > 0 {
			continue
		}
		if missing++; cap(cell) < size {
			return fmt.Errorf("erasure: reconstruct %s: room for %d bytes in cell %d, expected %d", c.p, cap(cell), i, size)
		}
	}
	switch {
	case missing == 0:
		return nil
	case present < int(c.p.K):
		return fmt.Errorf("%w: %d of %d", ErrTooFew, present, c.p.K)
	case c.rs != nil:
		return c.rs.ReconstructSome(cells, want)
	}
	for i := range cells { // k == 1: every cell is a copy
		if want[i] && len(cells[i]) == 0 {
			cells[i] = cells[i][:size]
			copy(cells[i], cells[source])
		}
	}
	return nil
}

func (c *Codec) check(cells [][]byte) error {
	if len(cells) != c.p.N() {
		return fmt.Errorf("erasure: codec %s got %d cells, expected %d", c.p, len(cells), c.p.N())
	}
	return nil
}

// Codecs keeps one codec for each profile that was asked for: a codec's matrices and its cache of inversions are worth
// keeping. The zero value is ready; it is safe for concurrent use.
type Codecs struct {
	mu sync.RWMutex
	m  map[Profile]*Codec
}

// Get returns the codec of p.
func (s *Codecs) Get(p Profile) (*Codec, error) {
	s.mu.RLock()
	c := s.m[p]
	s.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := NewCodec(p)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.m[p]; have != nil {
		return have, nil
	}
	if s.m == nil {
		s.m = make(map[Profile]*Codec)
	}
	s.m[p] = c // bounded: a valid profile is one of a few hundred
	return c, nil
}
