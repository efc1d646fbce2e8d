// Package erasure turns bodies into shards and back: profile and stripe geometry, encoding, reconstruction. Pure
// functions over buffers: no I/O, no goroutines of its own, no knowledge of drives or nodes. The codec does not verify
// (klauspost/reedsolomon says so): callers check block CRCs (shard.CheckBlocks) before they hand cells in.
package erasure

import "fmt"

// Profile is how many data (K) and parity (M) shards a blob has. It is stored with each blob and never derived from
// configuration again.
type Profile struct {
	K uint8 `json:"k"`
	M uint8 `json:"m"`
}

// N returns the number of shards.
func (p Profile) N() int { return int(p.K) + int(p.M) }

func (p Profile) String() string { return fmt.Sprintf("%d+%d", p.K, p.M) }

// WriteQuorum is how many durable shards allow an acknowledgement after the grace: k + ceil(m/2) (PROTOCOLS D).
func (p Profile) WriteQuorum() int { return int(p.K) + (int(p.M)+1)/2 }

// DefaultProfile is the profile for this many failure domains; docs/protocols.md F.
func DefaultProfile(domains int) Profile {
	switch {
	case domains >= 12:
		return Profile{8, 4}
	case domains >= 8:
		return Profile{5, 3}
	case domains >= 6:
		return Profile{4, 2}
	case domains == 5:
		return Profile{3, 2}
	case domains == 4:
		return Profile{2, 2}
	case domains == 3:
		return Profile{1, 2}
	case domains == 2:
		return Profile{1, 1}
	}
	return Profile{1, 0}
}

const (
	smallCell  = 64 << 10 // bytes, for bodies below largeBody
	largeCell  = 1 << 20  // bytes
	largeBody  = 8 << 20  // bytes
	cellAlign  = 4 << 10  // bytes; shard.Align
	maxBodyLen = 5 << 40  // bytes; S3's largest object
)

// Geometry places the bytes of one blob. A stripe is K cells of body bytes and M of parity. All stripes have cells of
// CellSize but the last, whose cell is ceil(rest/K) rounded up to 4 KiB, zero-filled.
type Geometry struct {
	Profile
	BodyLen  int64 // bytes, > 0
	CellSize int   // bytes
}

// NewGeometry returns the geometry for a body of this length (PROTOCOLS F).
func NewGeometry(p Profile, bodyLen int64) (Geometry, error) {
	if p.K == 0 || p.N() > 32 {
		return Geometry{}, fmt.Errorf("erasure: profile %s: need 1 to 32 shards with at least one data shard", p)
	}
	if bodyLen <= 0 || bodyLen > maxBodyLen {
		return Geometry{}, fmt.Errorf("erasure: body of %d bytes: need 1 to %d", bodyLen, int64(maxBodyLen))
	}
	g := Geometry{Profile: p, BodyLen: bodyLen, CellSize: smallCell}
	if bodyLen >= largeBody {
		g.CellSize = largeCell
	}
	return g, nil
}

// StripeSize returns the body bytes in a full stripe.
func (g Geometry) StripeSize() int64 { return int64(g.K) * int64(g.CellSize) }

// Stripes returns the number of stripes.
func (g Geometry) Stripes() int64 { return (g.BodyLen + g.StripeSize() - 1) / g.StripeSize() }

// Cell returns the cell size in bytes of stripe number s.
func (g Geometry) Cell(s int64) int {
	rest := g.BodyLen - s*g.StripeSize()
	if rest >= g.StripeSize() {
		return g.CellSize
	}
	cell := (rest + int64(g.K) - 1) / int64(g.K)
	return int((cell + cellAlign - 1) / cellAlign * cellAlign)
}

// StripeBody returns the number of body bytes in stripe s.
func (g Geometry) StripeBody(s int64) int64 {
	return min(g.StripeSize(), g.BodyLen-s*g.StripeSize())
}

// ShardLen returns the length in bytes of each shard.
func (g Geometry) ShardLen() int64 {
	last := g.Stripes() - 1
	return last*int64(g.CellSize) + int64(g.Cell(last))
}
