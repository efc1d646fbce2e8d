package object

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"objstore/erasure"
	"objstore/metadata"
	"objstore/shard"
)

var profiles = []erasure.Profile{{K: 1, M: 0}, {K: 1, M: 1}, {K: 1, M: 2}, {K: 2, M: 2}, {K: 4, M: 2}, {K: 8, M: 4}}

// sizesFor are body lengths around every boundary of the geometry and of the slabs.
func sizesFor(p erasure.Profile) []int {
	k := int(p.K)
	sizes := []int{0, 1, 4095, 4096, 4097, metadata.MaxInline, metadata.MaxInline + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1}
	for _, n := range []int{k * 64 << 10, k * 1 << 20, 8 << 20} {
		sizes = append(sizes, n-1, n, n+1)
	}
	return append(sizes, k*2<<20+12345)
}

func TestEveryBodySizeComesBackUnderEveryProfile(t *testing.T) {
	for _, p := range profiles {
		t.Run(p.String(), func(t *testing.T) {
			h := newHarness(t, p, 0)
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			for _, size := range sizesFor(p) {
				key := fmt.Sprintf("key-%d", size)
				body := randomBody(seed, size)
				res := h.put(key, body)
				if res.Version.ETag != etagOf(body) || res.Version.Size != int64(size) || res.Version.ModTime == 0 {
					t.Fatalf("%d bytes: put answered %+v", size, res.Version)
				}
				o := h.open(key)
				if o.Inline != (size > 0 && size <= metadata.MaxInline) || o.ETag != etagOf(body) || o.ID != res.Version.ID {
					t.Fatalf("%d bytes: opened %+v", size, o.Version)
				}
				h.expect(key, body)
				for range 6 {
					off := rng.IntN(size + 1)
					n := rng.IntN(size - off + 1)
					got, err := h.read(key, int64(off), int64(n))
					if err != nil || !bytes.Equal(got, body[off:off+n]) {
						t.Fatalf("seed %d: %d bytes, range %d+%d: %d bytes, %v", seed, size, off, n, len(got), err)
					}
				}
			}
			if n := h.pending(); n != 0 {
				t.Fatalf("%d repair rows after healthy puts", n)
			}
		})
	}
}

func TestShardsCarryTheirHeaderAndTheCommittedDigest(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 1)
	for _, size := range []int{100 << 10, 9 << 20} {
		h.put("key", randomBody(1, size))
		b := h.blob("key")
		o := h.open("key")
		for i := range 4 {
			info, err := h.mem(b, i).Stat(t.Context(), h.ref(b, i), true)
			if err != nil {
				t.Fatal(err)
			}
			if info.State != shard.StateOK || info.Digest != b.Digests[i] {
				t.Errorf("%d bytes, shard %d: state %s, digest %x, committed %x", size, i, info.State, info.Digest, b.Digests[i])
			}
			s := info.Spec
			if s.K != 2 || s.M != 2 || s.BodyLen != uint64(size) || s.Key != "key" || s.Version != o.ID || s.Bucket != h.source.View().Buckets[testBucket].ID ||
				s.Writer.Node != 1 || s.Writer.StartID != h.e.cfg.StartID || s.Writer.Put != b.WriterPut || s.Attempt != 1 || s.CellSize != b.CellSize {
				t.Errorf("%d bytes, shard %d: header %+v", size, i, s)
			}
		}
	}
}

func TestEachShardByteIsCountedOnce(t *testing.T) {
	h := newHarness(t, erasure.Profile{K: 2, M: 2}, 0)
	h.nodes.Local = 1
	body := randomBody(1, 3<<20)
	h.put("key", body)
	h.expect("key", body)
	h.bytes.Lock()
	defer h.bytes.Unlock()
	put := h.bytes.m["tcp put"] + h.bytes.m["local put"]
	get := h.bytes.m["tcp get"] + h.bytes.m["local get"]
	if put != 2*len(body) || get != len(body) || h.bytes.m["local put"] != len(body)/2 {
		t.Errorf("counted %v for a body of %d bytes in 2+2", h.bytes.m, len(body))
	}
}
