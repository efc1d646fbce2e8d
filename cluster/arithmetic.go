package cluster

import (
	"fmt"

	"objstore/erasure"
)

// Arithmetic is what a layout can lose. Counts are of failure domains that are down, whichever they are.
type Arithmetic struct {
	Unit    string // "node" or "drive"
	Domains int
	Profile erasure.Profile
	RF      int // replicas of a metadata group
	Voters  int // of group 0
}

// ArithmeticOf returns the arithmetic of a view: of what is fixed once it is formed, of what would be fixed now before.
func ArithmeticOf(v *View) Arithmetic {
	domains, unit := planDomains(v)
	a := Arithmetic{Unit: unit, Domains: len(domains), Profile: erasure.DefaultProfile(len(domains))}
	if v.Formed {
		a.Unit, a.Domains, a.Profile = domainUnit(v), formedDomains(v), v.Profile
	}
	a.RF = ReplicationFactor(a.Domains, a.Profile)
	if g := v.Groups[1]; v.Formed && g != nil {
		a.RF = len(g.Founders)
	}
	a.Voters = 1
	if a.Unit == unitNode {
		a.Voters = Group0Voters(a.Domains, a.Profile)
	}
	return a
}

// formedDomains counts the failure domains that the placement-group table uses.
func formedDomains(v *View) int {
	seen := map[uint64]bool{}
	unit := domainUnit(v)
	for i := range v.PGs {
		for _, id := range v.PGs[i].Drives {
			if d := v.Drives[id]; d != nil && unit == unitNode {
				seen[uint64(d.Node)] = true
			} else {
				seen[uint64(id)] = true
			}
		}
	}
	return len(seen)
}

// ReadDown is how many domains may be down, whichever, with k shards of every fully written blob left.
func (a Arithmetic) ReadDown() int { return int(a.Profile.M) }

// WriteDown is how many domains may be down, whichever, with enough shards of every placement group left to acknowledge
// a write: n − (k + ⌈m/2⌉).
func (a Arithmetic) WriteDown() int { return a.Profile.N() - a.Profile.WriteQuorum() }

// MetaDown is how many domains may be down, whichever, with a majority of every metadata group left.
func (a Arithmetic) MetaDown() int { return (a.RF - 1) / 2 }

// Group0Down is how many domains may be down, whichever, with a majority of group 0 left.
func (a Arithmetic) Group0Down() int { return (a.Voters - 1) / 2 }

// ServeReads is how many domains may be down, whichever, with everything readable: shards and metadata are both needed.
func (a Arithmetic) ServeReads() int { return min(a.ReadDown(), a.MetaDown()) }

// ServeWrites is how many domains may be down, whichever, with every bucket writable.
func (a Arithmetic) ServeWrites() int { return min(a.WriteDown(), a.MetaDown()) }

// EarlyLoss is how many further losses an object survives that was acknowledged with the write quorum only:
// m − (n − acknowledged).
func (a Arithmetic) EarlyLoss() int { return int(a.Profile.M) - a.WriteDown() }

// Describe says in sentences what the layout survives, data and metadata apart.
func Describe(a Arithmetic) []string {
	u, p := a.Unit, a.Profile
	if p.M == 0 {
		return []string{
			fmt.Sprintf("Profile %s on %s: NO REDUNDANCY. The loss of %s loses the objects on it.", p, count(a.Domains, u), oneOf(a.Domains, u)),
			fmt.Sprintf("Metadata has %s: %s.", count(a.RF, "replica"), downs(a.MetaDown(), a.Domains, u, "may be down with every bucket served")),
		}
	}
	lines := []string{
		fmt.Sprintf("Profile %s on %s: each object is %d data and %d parity shards on %d different %ss.", p, count(a.Domains, u), p.K, p.M, p.N(), u),
		fmt.Sprintf("Data: the shards of a fully written object survive the loss of any %s; a write needs %d of its %d shards, so %s.",
			count(a.ReadDown(), u), p.WriteQuorum(), p.N(), downs(a.WriteDown(), p.N(), u, "of a placement group may be down while it takes writes")),
	}
	if a.WriteDown() > 0 {
		lines = append(lines, fmt.Sprintf("Before repair, an object acknowledged with only %d shards survives the loss of any %s.",
			p.WriteQuorum(), count(a.EarlyLoss(), u)))
	}
	lines = append(lines, fmt.Sprintf("Metadata, small objects included: %s per group, a majority of %d must be up to serve its buckets, so %s.",
		count(a.RF, "replica"), a.RF/2+1, downs(a.MetaDown(), a.RF, u, "of a group may be down or lost")))
	return append(lines, together(a))
}

// together is the sentence about the whole: what is served needs shards and metadata.
func together(a Arithmetic) string {
	const more = "; with more, buckets may stop until enough are back, and more lost for ever than a group bears lose its metadata"
	r, w, u := a.ServeReads(), a.ServeWrites(), a.Unit
	switch {
	case r == 0 && a.ReadDown() == 0:
		return fmt.Sprintf("Together: with any %s down there are objects that can be neither read nor written until it is back.", u)
	case r == 0:
		return fmt.Sprintf("Together: with any %s down there are objects that can be neither read nor written until it is back; their shards outlive the loss of %s.", u, count(a.ReadDown(), u))
	case w == 0:
		return fmt.Sprintf("Together: with any %s down everything is read, but there are placement groups that take no writes%s.", count(r, u), more)
	case r == w:
		return fmt.Sprintf("Together: with any %s down everything is read and written%s.", count(r, u), more)
	default:
		return fmt.Sprintf("Together: with any %s down everything is read, with any %s down everything is written%s.", count(r, u), count(w, u), more)
	}
}

func count(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}

func oneOf(n int, unit string) string {
	if n == 1 {
		return "the " + unit
	}
	return "any " + unit
}

// downs says how many of total may be down.
func downs(n, total int, unit, may string) string {
	switch {
	case n > 0:
		return fmt.Sprintf("any %s %s", count(n, unit), may)
	case total == 1:
		return fmt.Sprintf("the %s must be up", unit)
	case total == 2:
		return fmt.Sprintf("both %ss must be up", unit)
	}
	return fmt.Sprintf("all %d %ss must be up", total, unit)
}
