package object

import (
	"context"
	"errors"
	"hash"
	"io"
	"iter"
	"sync/atomic"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

// slab is a run of whole stripes in one buffer: the n shards' parts of it one after the other, each contiguous, as it
// will stand in the shard. Cells travel in slabs: one append carries up to slabBytes of a shard.
type slab struct {
	g       erasure.Geometry
	buf     *shard.Buf
	first   int64 // stripe
	per     int   // bytes for each shard
	bodyOff int64 // of its first body byte in the blob
	body    int64 // body bytes
	crcs    [][]uint32

	refs  atomic.Int32    // who may still read buf
	freed chan<- struct{} // told when buf went back, unless nil; never full
}

// slabStripes returns how many stripes go into one slab.
func slabStripes(g erasure.Geometry) int64 { return max(1, slabBytes/int64(g.CellSize)) }

// slabCount returns the number of slabs of a blob.
func slabCount(g erasure.Geometry) int64 {
	per := slabStripes(g)
	return (g.Stripes() + per - 1) / per
}

// slabSize returns the buffer that slab number 0, the largest, needs.
func slabSize(g erasure.Geometry) int {
	return g.N() * int(min(slabStripes(g)*int64(g.CellSize), g.ShardLen()))
}

// newSlab gets the buffer for slab number num. It has one reference.
func newSlab(ctx context.Context, pool *shard.Pool, g erasure.Geometry, num int64) (*slab, error) {
	s := &slab{g: g, first: num * slabStripes(g)}
	shardOff := s.first * int64(g.CellSize)
	s.per = int(min(slabStripes(g)*int64(g.CellSize), g.ShardLen()-shardOff))
	s.bodyOff = s.first * g.StripeSize()
	s.body = min(slabStripes(g)*g.StripeSize(), g.BodyLen-s.bodyOff)
	var err error
	if s.buf, err = pool.Get(ctx, s.per*g.N()); err != nil {
		return nil, err
	}
	s.refs.Store(1)
	return s, nil
}

func (s *slab) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.buf.Release()
	if s.freed != nil {
		s.freed <- struct{}{}
	}
}

// region is shard i's part.
func (s *slab) region(i int) []byte {
	return s.buf.B[i*s.per : (i+1)*s.per : (i+1)*s.per]
}

// pieces yields the slab's body bytes in order.
func (s *slab) pieces() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		base := s.first * int64(s.g.CellSize)
		for p := range s.g.Plan(s.bodyOff, s.body) {
			at := int(p.ShardOff - base)
			if !yield(s.region(p.Shard)[at : at+p.Len]) {
				return
			}
		}
	}
}

// fill reads the slab's body bytes from r and zero-fills the last stripe.
func (s *slab) fill(r io.Reader) error {
	got := s.bodyOff
	for p := range s.pieces() {
		n, err := io.ReadFull(r, p)
		got += int64(n)
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return oerr.Errorf("object.body", oerr.InvalidArgument, "body ended after %d bytes, expected %d: %w", got, s.g.BodyLen, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
	}
	last := s.g.Stripes() - 1
	at := int((last - s.first) * int64(s.g.CellSize))
	if at >= s.per {
		return nil // the last stripe is in another slab
	}
	cell, body := s.g.Cell(last), s.g.StripeBody(last)
	for i := range int(s.g.K) {
		used := max(0, min(int64(cell), body-int64(i)*int64(cell)))
		clear(s.region(i)[at+int(used) : at+cell])
	}
	return nil
}

// encodeStep is how much of each shard is encoded at one time, in bytes: whole blocks, few enough that they are in the
// cache for their checksums, and enough to pay for the codec's allocation.
const encodeStep = 2 * shard.BlockSize

// encode computes the parity and all checksums.
func (s *slab) encode(c *erasure.Codec, blob ident.ID) error {
	n := s.g.N()
	s.crcs = newCRCs(n, s.per)
	first := uint64(s.first) * uint64(s.g.CellSize) / shard.BlockSize
	var cells [erasure.MaxShards][]byte
	for off := 0; off < s.per; off += encodeStep {
		end := min(off+encodeStep, s.per)
		for i := range n {
			cells[i] = s.region(i)[off:end]
		}
		if err := c.Encode(cells[:n]); err != nil {
			return oerr.E("object.encode", oerr.Internal, err)
		}
		for i := range n {
			s.crcs[i] = shard.AppendCRCs(s.crcs[i], blob, uint8(i), first, cells[i])
		}
		first += encodeStep / shard.BlockSize
	}
	return nil
}

// checksum computes the checksums again, for another blob id.
func (s *slab) checksum(blob ident.ID) [][]uint32 {
	crcs := newCRCs(s.g.N(), s.per)
	first := uint64(s.first) * uint64(s.g.CellSize) / shard.BlockSize
	for i := range crcs {
		crcs[i] = shard.AppendCRCs(crcs[i], blob, uint8(i), first, s.region(i))
	}
	return crcs
}

// newCRCs makes n empty tables with room for the blocks of per bytes. Writers may keep them, so they are not reused.
func newCRCs(n, per int) [][]uint32 {
	blocks := shard.Blocks(uint64(per))
	all, tables := make([]uint32, n*blocks), make([][]uint32, n)
	for i := range tables {
		tables[i] = all[i*blocks : i*blocks : (i+1)*blocks]
	}
	return tables
}

// expectEOF reads the end of a body. A reader that checks something at the end does it now, before the commit.
func expectEOF(r io.Reader, length int64) error {
	const tries = 100 // of reads that return nothing; io.ErrNoProgress after that, as in package bufio
	var b [1]byte
	for range tries {
		n, err := r.Read(b[:])
		switch {
		case n > 0:
			return oerr.Errorf("object.body", oerr.InvalidArgument, "body goes on after the %d bytes it was to have", length)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}

// digester feeds a body to its hashes, each on a goroutine of its own, from the slabs that are being written anyway.
type digester struct {
	feeds []chan *slab
	done  chan struct{} // one message from each goroutine
	stop  atomic.Bool   // the put failed: drain without hashing
}

func startDigests(hs []hash.Hash) *digester {
	d := &digester{feeds: make([]chan *slab, len(hs)), done: make(chan struct{}, len(hs))}
	for i, h := range hs {
		d.feeds[i] = make(chan *slab, slabsPerPut) // never full: no more slabs exist
		go d.run(h, d.feeds[i])
	}
	return d
}

func (d *digester) run(h hash.Hash, feed <-chan *slab) {
	for s := range feed {
		if !d.stop.Load() {
			for p := range s.pieces() {
				h.Write(p)
			}
		}
		s.release()
	}
	d.done <- struct{}{}
}

// feed hands s to every hash, with a reference for each.
func (d *digester) feed(s *slab) {
	s.refs.Add(int32(len(d.feeds)))
	for _, f := range d.feeds {
		f <- s
	}
}

// finish waits until all hashes have caught up, or with abort until they have let go. The hashes are the caller's again.
func (d *digester) finish(abort bool) {
	if abort {
		d.stop.Store(true)
	}
	for _, f := range d.feeds {
		close(f)
	}
	for range d.feeds {
		<-d.done
	}
}
