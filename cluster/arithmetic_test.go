package cluster

import (
	"math/bits"
	"strings"
	"testing"

	"objstore/erasure"
)

func TestWhatEachLayoutSurvives(t *testing.T) {
	for _, c := range []struct {
		nodes                                               int
		profile                                             string
		rf, voters                                          int
		read, write, meta, group0, reads, writes, earlyLoss int
	}{
		{1, "1+0", 1, 1, 0, 0, 0, 0, 0, 0, 0},
		{2, "1+1", 2, 2, 1, 0, 0, 0, 0, 0, 1},
		{3, "1+2", 3, 3, 2, 1, 1, 1, 1, 1, 1},
		{4, "2+2", 3, 3, 2, 1, 1, 1, 1, 1, 1},
		{5, "3+2", 3, 3, 2, 1, 1, 1, 1, 1, 1},
		{6, "4+2", 3, 3, 2, 1, 1, 1, 1, 1, 1},
		{7, "4+2", 3, 3, 2, 1, 1, 1, 1, 1, 1},
		{8, "5+3", 5, 5, 3, 1, 2, 2, 2, 1, 2},
		{9, "5+3", 5, 5, 3, 1, 2, 2, 2, 1, 2},
		{10, "5+3", 5, 5, 3, 1, 2, 2, 2, 1, 2},
		{11, "5+3", 5, 5, 3, 1, 2, 2, 2, 1, 2},
		{12, "8+4", 5, 5, 4, 2, 2, 2, 2, 2, 2},
	} {
		a := ArithmeticOf(formed(t, c.nodes, 1).s.View())
		if a.Profile.String() != c.profile || a.RF != c.rf || a.Voters != c.voters || a.Domains != c.nodes {
			t.Errorf("%d nodes: %+v, expected profile %s, %d replicas, %d voters", c.nodes, a, c.profile, c.rf, c.voters)
		}
		got := [...]int{a.ReadDown(), a.WriteDown(), a.MetaDown(), a.Group0Down(), a.ServeReads(), a.ServeWrites(), a.EarlyLoss()}
		want := [...]int{c.read, c.write, c.meta, c.group0, c.reads, c.writes, c.earlyLoss}
		if got != want {
			t.Errorf("%d nodes: read, write, meta, group 0, reads, writes, early loss down = %v, expected %v", c.nodes, got, want)
		}
	}
}

// The sentences rest on the arithmetic; this checks the arithmetic against every set of nodes that can be down.
func TestTheArithmeticIsTrueOfThePlan(t *testing.T) {
	for nodes := 1; nodes <= 12; nodes++ {
		v := formed(t, nodes, 2).s.View()
		a := ArithmeticOf(v)
		if nodes == 1 {
			if a.Unit != unitDrive {
				t.Fatalf("one node: the domains are %ss", a.Unit)
			}
			continue // checked with drives below
		}
		checkTruth(t, v, a, nodes, func(d *Drive) int { return int(d.Node) - 1 })
	}
	for drives := 1; drives <= 8; drives++ {
		v := formed(t, 1, drives).s.View()
		checkTruth(t, v, ArithmeticOf(v), drives, func(d *Drive) int { return int(d.ID) - 1 })
	}
}

func checkTruth(t *testing.T, v *View, a Arithmetic, domains int, domainOf func(*Drive) int) {
	t.Helper()
	read, write, meta := domains, domains, domains // fewest down that break it, less one
	for down := range uint(1 << domains) {
		n := bits.OnesCount(down)
		up := func(d *Drive) int { return int(^down >> domainOf(d) & 1) }
		for _, pg := range v.PGs {
			have := 0
			for _, id := range pg.Drives {
				have += up(v.Drives[id])
			}
			if have < int(pg.Profile.K) {
				read = min(read, n-1)
			}
			if have < pg.Profile.WriteQuorum() {
				write = min(write, n-1)
			}
		}
		for id, g := range v.Groups {
			have := 0
			for _, r := range g.Replicas {
				have += up(v.Drives[r.Drive])
			}
			if id != 0 && have <= len(g.Replicas)/2 {
				meta = min(meta, n-1)
			}
		}
	}
	if read != a.ReadDown() || write != a.WriteDown() || meta != a.MetaDown() {
		t.Errorf("%d %ss, profile %s: any %d, %d, %d may be down for reads, writes, metadata; the arithmetic says %d, %d, %d",
			domains, a.Unit, a.Profile, read, write, meta, a.ReadDown(), a.WriteDown(), a.MetaDown())
	}
}

func TestTheSentencesSayWhatHoldsAndWhatDoesNot(t *testing.T) {
	for _, c := range []struct {
		a    Arithmetic
		want []string
	}{
		{Arithmetic{unitNode, 1, erasure.Profile{K: 1}, 1, 1}, []string{"NO REDUNDANCY", "the node must be up"}},
		{Arithmetic{unitNode, 2, erasure.Profile{K: 1, M: 1}, 2, 2}, []string{"both nodes must be up", "can be neither read nor written", "shards outlive the loss of 1 node"}},
		{Arithmetic{unitNode, 3, erasure.Profile{K: 2, M: 1}, 3, 3}, []string{"all 3 nodes must be up", "with any 1 node down everything is read, but there are placement groups that take no writes"}},
		{Arithmetic{unitNode, 4, erasure.Profile{K: 2, M: 2}, 3, 3}, []string{
			"Profile 2+2 on 4 nodes: each object is 2 data and 2 parity shards on 4 different nodes.",
			"survive the loss of any 2 nodes", "a write needs 3 of its 4 shards, so any 1 node of a placement group may be down",
			"acknowledged with only 3 shards survives the loss of any 1 node", "a majority of 2", "with any 1 node down everything is read and written",
		}},
		{Arithmetic{unitDrive, 4, erasure.Profile{K: 2, M: 2}, 3, 1}, []string{"on 4 drives", "any 1 drive"}},
		{Arithmetic{unitNode, 12, erasure.Profile{K: 8, M: 4}, 5, 5}, []string{"a write needs 10 of its 12 shards", "any 2 nodes", "survive the loss of any 4 nodes"}},
	} {
		text := strings.Join(Describe(c.a), "\n")
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				t.Errorf("%+v: %q is missing in\n%s", c.a, w, text)
			}
		}
	}
}

func TestBucketNamesFollowTheRulesOfS3(t *testing.T) {
	for _, good := range []string{"abc", "a1b", "my-bucket", "my.bucket.name", "123", "1.2.3", strings.Repeat("a", 63), "a--b", "xn-a", "sthree"} {
		if err := ValidateBucketName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "ab", strings.Repeat("a", 64), "Abc", "a_b", "a b", "-abc", "abc-", ".abc", "abc.", "a..b", "a.-b", "a-.b", "192.168.5.4",
		"999.1.1.1", "xn--abc", "sthree-abc", "amzn-s3-demo-abc", "abc-s3alias", "abc--ol-s3", "abc.mrap", "abc--x-s3", "abc--table-s3", "ab\x00c", "äbc", "a/b",
	} {
		if err := ValidateBucketName(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}
