package erasure

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

var profiles = []Profile{{1, 0}, {1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 2}, {4, 2}, {5, 3}, {8, 4}, {3, 0}}

// boundarySizes are body lengths around every place where the geometry changes.
func boundarySizes(p Profile) []int64 {
	k := int64(p.K)
	sizes := []int64{1, 2, largeBody - 1, largeBody, largeBody + 1, largeBody + k*largeCell + 1}
	for _, edge := range []int64{cellAlign, smallCell, k * cellAlign, k * smallCell, 3 * k * smallCell, k * largeCell} {
		sizes = append(sizes, edge-1, edge, edge+1)
	}
	return sizes
}

func TestEveryBodySizeFillsItsStripesExactly(t *testing.T) {
	for _, p := range profiles {
		for _, size := range boundarySizes(p) {
			if size <= 0 {
				continue
			}
			g, err := NewGeometry(p, size)
			if err != nil {
				t.Fatal(err)
			}
			var body, shard int64
			for s := range g.Stripes() {
				if g.StripeBody(s) <= 0 || g.StripeBody(s) > int64(p.K)*int64(g.Cell(s)) || g.Cell(s)%cellAlign != 0 {
					t.Fatalf("%s, %d bytes, stripe %d: body %d, cell %d", p, size, s, g.StripeBody(s), g.Cell(s))
				}
				body += g.StripeBody(s)
				shard += int64(g.Cell(s))
			}
			if body != size || shard != g.ShardLen() {
				t.Fatalf("%s, %d bytes: stripes hold %d, shard length %d, expected %d", p, size, body, shard, g.ShardLen())
			}
		}
	}
}

func TestPlanCoversARangeInOrderAndShardRangeHoldsIt(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, p := range profiles {
		for _, size := range boundarySizes(p) {
			g, err := NewGeometry(p, size)
			if err != nil {
				t.Fatal(err)
			}
			for range 30 {
				off := rng.Int64N(size)
				checkPlan(t, g, off, 1+rng.Int64N(size-off), seed)
			}
			checkPlan(t, g, 0, size, seed)
			checkPlan(t, g, size-1, 1, seed)
		}
	}
}

func checkPlan(t *testing.T, g Geometry, off, n int64, seed uint64) {
	t.Helper()
	var total int64
	lo, hi := make([]int64, g.K), make([]int64, g.K)
	for piece := range g.Plan(off, n) {
		at := off + total // where this piece must stand, found the slow way
		s := at / g.StripeSize()
		in := at - s*g.StripeSize()
		i, cellOff := in/int64(g.Cell(s)), in%int64(g.Cell(s))
		if piece.Shard != int(i) || piece.ShardOff != s*int64(g.CellSize)+cellOff || piece.Len <= 0 || cellOff+int64(piece.Len) > int64(g.Cell(s)) {
			t.Fatalf("seed %d: %+v, range %d+%d: piece %+v at body byte %d", seed, g, off, n, piece, at)
		}
		if lo[i] == hi[i] {
			lo[i] = piece.ShardOff
		}
		hi[i] = piece.ShardOff + int64(piece.Len)
		total += int64(piece.Len)
	}
	if total != n {
		t.Fatalf("seed %d: %+v, range %d+%d: pieces hold %d bytes", seed, g, off, n, total)
	}
	for i := range int(g.K) {
		if gotLo, gotHi := g.ShardRange(i, off, n); gotLo != lo[i] || gotHi != hi[i] {
			t.Fatalf("seed %d: %+v, range %d+%d, shard %d: range [%d, %d), expected [%d, %d)", seed, g, off, n, i, gotLo, gotHi, lo[i], hi[i])
		}
	}
}

func TestAnyKCellsRebuildTheRest(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, p := range profiles {
		c, err := NewCodec(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 31, cellAlign, cellAlign + 1, smallCell} {
			cells := randomCells(rng, p, size)
			if err := c.Encode(cells); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				got, want := make([][]byte, p.N()), make([]bool, p.N())
				copy(got, cells)
				for _, i := range rng.Perm(p.N())[:p.M] {
					got[i], want[i] = make([]byte, 0, size), rng.IntN(4) > 0
				}
				if err := c.Reconstruct(got, want); err != nil {
					t.Fatalf("seed %d: %s: %v", seed, p, err)
				}
				for i := range got {
					if len(got[i]) == 0 && !want[i] {
						continue // unwanted cells are left alone
					}
					if !bytes.Equal(got[i], cells[i]) {
						t.Fatalf("seed %d: %s, %d bytes: cell %d differs, wanted %v", seed, p, size, i, want)
					}
				}
			}
		}
	}
}

func randomCells(rng *rand.Rand, p Profile, size int) [][]byte {
	cells := make([][]byte, p.N())
	for i := range cells {
		cells[i] = make([]byte, size)
		for j := range cells[i] {
			cells[i][j] = byte(rng.Uint32())
		}
	}
	return cells
}

func TestFewerThanKCellsAreRefused(t *testing.T) {
	for _, p := range profiles {
		c, _ := NewCodec(p)
		cells, want := randomCells(rand.New(rand.NewPCG(1, 1)), p, 64), make([]bool, p.N())
		for i := range int(p.M) + 1 {
			cells[i], want[i] = make([]byte, 0, 64), true
		}
		if err := c.Reconstruct(cells, want); !errors.Is(err, ErrTooFew) {
			t.Errorf("%s: %v, expected %v", p, err, ErrTooFew)
		}
	}
}

func TestMisshapenCellsAreRefused(t *testing.T) {
	c, _ := NewCodec(Profile{2, 2})
	rng := rand.New(rand.NewPCG(1, 1))
	full := func() [][]byte { return randomCells(rng, Profile{2, 2}, 64) }
	short := full()
	short[3] = short[3][:63]
	if c.Encode(short) == nil || c.Encode(full()[:3]) == nil {
		t.Error("encode took misshapen cells")
	}
	want := []bool{true, false, false, false}
	noRoom := full()
	noRoom[0] = nil
	if c.Reconstruct(noRoom, want) == nil {
		t.Error("a wanted cell without room was taken")
	}
	uneven := full()
	uneven[0], uneven[2] = uneven[0][:0], uneven[2][:32]
	if c.Reconstruct(uneven, want) == nil || c.Reconstruct(full()[:2], want) == nil || c.Reconstruct(full(), want[:2]) == nil {
		t.Error("reconstruct took misshapen cells")
	}
	for _, p := range []Profile{{0, 2}, {30, 3}} {
		if _, err := NewCodec(p); err == nil {
			t.Errorf("profile %s was taken", p)
		}
	}
}

// TestParityAgreesWithASchoolbookField computes the parity again from the definition: the Vandermonde matrix v[r][c] = r^c
// made systematic, over GF(2^8) with polynomial 0x11d, multiplication by shift and reduce.
func TestParityAgreesWithASchoolbookField(t *testing.T) {
	for _, p := range profiles {
		k, n := int(p.K), p.N()
		top, all := make([][]byte, k), make([][]byte, n)
		for r := range n {
			all[r] = make([]byte, k)
			x := byte(1)
			for c := range k {
				all[r][c] = x
				x = slowMul(x, byte(r))
			}
			if r < k {
				top[r] = bytes.Clone(all[r])
			}
		}
		if k > 1 {
			inv := slowInvert(t, top)
			for r := range all {
				all[r] = slowRow(all[r], inv)
			}
		}
		cells := randomCells(rand.New(rand.NewPCG(7, 7)), p, 257)
		c, _ := NewCodec(p)
		if err := c.Encode(cells); err != nil {
			t.Fatal(err)
		}
		for r := k; r < n; r++ {
			for b := range cells[r] {
				var want byte
				for j := range k {
					want ^= slowMul(all[r][j], cells[j][b])
				}
				if cells[r][b] != want {
					t.Fatalf("%s: parity cell %d byte %d is %02x, expected %02x", p, r, b, cells[r][b], want)
				}
			}
		}
	}
}

func slowMul(a, b byte) byte {
	var r byte
	for ; b > 0; b >>= 1 {
		if b&1 == 1 {
			r ^= a
		}
		carry := a & 0x80
		if a <<= 1; carry != 0 {
			a ^= 0x1d
		}
	}
	return r
}

func slowRow(row []byte, m [][]byte) []byte {
	out := make([]byte, len(row))
	for c := range out {
		for j := range row {
			out[c] ^= slowMul(row[j], m[j][c])
		}
	}
	return out
}

func slowInvert(t *testing.T, m [][]byte) [][]byte {
	n := len(m)
	inv := make([][]byte, n)
	for i := range inv {
		inv[i] = make([]byte, n)
		inv[i][i] = 1
	}
	for c := range n {
		pivot := c
		for m[pivot][c] == 0 {
			if pivot++; pivot == n {
				t.Fatal("singular matrix")
			}
		}
		m[c], m[pivot], inv[c], inv[pivot] = m[pivot], m[c], inv[pivot], inv[c]
		var scale byte
		for x := 1; x < 256; x++ {
			if slowMul(byte(x), m[c][c]) == 1 {
				scale = byte(x)
			}
		}
		for j := range n {
			m[c][j], inv[c][j] = slowMul(m[c][j], scale), slowMul(inv[c][j], scale)
		}
		for r := range n {
			if f := m[r][c]; r != c && f != 0 {
				for j := range n {
					m[r][j] ^= slowMul(f, m[c][j])
					inv[r][j] ^= slowMul(f, inv[c][j])
				}
			}
		}
	}
	return inv
}

func TestSelfTestPassesAndNoticesAWrongCodec(t *testing.T) {
	if err := SelfTest(); err != nil {
		t.Fatal(err)
	}
	a := knownAnswers()[4]
	a.sum ^= 1
	if selfTest(a) == nil {
		t.Error("a wrong parity hash passed")
	}
}

func TestStoredGeometryRefusesCellSizesThatNobodyWrote(t *testing.T) {
	for _, cell := range []uint32{0, 1, 4 << 10, smallCell + 1, 32 << 20} {
		if _, err := StoredGeometry(Profile{2, 2}, 1<<20, cell); err == nil {
			t.Errorf("cell size %d was taken", cell)
		}
	}
	if g, err := StoredGeometry(Profile{2, 2}, 1<<20, largeCell); err != nil || g.CellSize != largeCell {
		t.Errorf("got %+v, %v", g, err)
	}
}

func TestCodecsHandOutOneCodecForEachProfile(t *testing.T) {
	var s Codecs
	a, err := s.Get(Profile{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := s.Get(Profile{2, 2}); a != b {
		t.Error("two codecs for one profile")
	}
	if _, err := s.Get(Profile{0, 1}); err == nil {
		t.Error("profile 0+1 was taken")
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("x"), uint8(1), uint8(1), uint32(1))
	f.Add(bytes.Repeat([]byte("objstore"), 1000), uint8(2), uint8(2), uint32(5))
	f.Add(bytes.Repeat([]byte{0}, 100), uint8(8), uint8(4), uint32(0xf0f))
	f.Fuzz(func(t *testing.T, body []byte, k, m uint8, lost uint32) {
		p := Profile{k % 9, m % 5}
		g, err := NewGeometry(p, int64(len(body)))
		if err != nil {
			return
		}
		c, err := NewCodec(p)
		if err != nil {
			t.Fatal(err)
		}
		shards := make([][]byte, p.N())
		for i := range shards {
			shards[i] = make([]byte, g.ShardLen())
		}
		at := 0
		for piece := range g.Plan(0, g.BodyLen) {
			at += copy(shards[piece.Shard][piece.ShardOff:][:piece.Len], body[at:])
		}
		if err := c.Encode(shards); err != nil {
			t.Fatal(err)
		}
		want := make([]bool, p.N())
		for i, dropped := 0, 0; i < p.N() && dropped < int(p.M); i++ {
			if lost>>i&1 == 1 {
				shards[i], want[i] = make([]byte, 0, g.ShardLen()), true
				dropped++
			}
		}
		if err := c.Reconstruct(shards, want); err != nil {
			t.Fatal(err)
		}
		var back []byte
		for piece := range g.Plan(0, g.BodyLen) {
			back = append(back, shards[piece.Shard][piece.ShardOff:][:piece.Len]...)
		}
		if !bytes.Equal(back, body) {
			t.Fatalf("%s: %d bytes came back wrong", p, len(body))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, p := range []Profile{{1, 2}, {2, 2}, {8, 4}} {
		b.Run(fmt.Sprint(p), func(b *testing.B) {
			c, _ := NewCodec(p)
			cells := randomCells(rand.New(rand.NewPCG(1, 1)), p, smallCell)
			b.SetBytes(int64(p.K) * smallCell)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Encode(cells); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
