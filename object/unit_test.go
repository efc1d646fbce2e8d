package object

import (
	"context"
	"strings"
	"testing"
	"time"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

func TestPoolClassAgreesWithThePool(t *testing.T) {
	pool := shard.NewPool(64 << 20)
	defer pool.Close()
	for _, n := range []int{1, 16 << 10, 16<<10 + 1, 80 << 10, 256 << 10, 288 << 10, 500 << 10, 544 << 10, 545 << 10, 1 << 20, 1<<20 + 1, 3 << 20, 4 << 20, 6 << 20, 8 << 20, 12 << 20, 16 << 20} {
		b, err := pool.Get(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(cap(b.B)); got != poolClass(n) {
			t.Errorf("%d bytes: the pool's buffer has %d, admitted for %d", n, got, poolClass(n))
		}
		b.Release()
	}
}

func TestLatencyFollowsTheSlowTail(t *testing.T) {
	const lo, hi, cold = time.Millisecond, time.Second, 77 * time.Millisecond
	var l latency
	if got := l.limit(lo, hi, cold); got != cold {
		t.Errorf("unknown drive: %s", got)
	}
	for range 64 {
		l.add(10 * time.Millisecond)
	}
	l.ring[3] = time.Minute // one outlier is no tail
	for range 8 {
		l.add(10 * time.Millisecond)
	}
	if got := l.limit(lo, hi, cold); got != 40*time.Millisecond {
		t.Errorf("steady drive: %s, expected 4 × 10 ms", got)
	}
	for range 64 {
		l.add(time.Minute)
	}
	if got := l.limit(lo, hi, cold); got != hi {
		t.Errorf("slow drive: %s, expected at most %s", got, hi)
	}
	for range 64 {
		l.add(time.Microsecond)
	}
	if got := l.limit(lo, hi, cold); got != lo {
		t.Errorf("fast drive: %s, expected at least %s", got, lo)
	}
}

func TestSuspicionComesAndGoes(t *testing.T) {
	var s driveStat
	now := time.Now()
	s.wasLate(now)
	s.wasLate(now)
	if s.isSuspect(now) {
		t.Error("two late reads made the drive suspect")
	}
	s.wasLate(now)
	if !s.isSuspect(now) {
		t.Error("three late reads did not make the drive suspect")
	}
	s.took(latencyRead, 1)
	if s.isSuspect(now) {
		t.Error("a success did not clear it")
	}
	s.failed(oerr.E("x", oerr.Unavailable, nil), now)
	if !s.isSuspect(now) || s.isSuspect(now.Add(suspectFor)) {
		t.Error("a failure must make it suspect, for a while")
	}
	s.took(latencyRead, 1)
	s.failed(oerr.E("x", oerr.DriveFull, nil), now)
	if s.isSuspect(now) || !s.isFull(now) {
		t.Error("a full drive is full, not suspect")
	}
	s.failed(context.Canceled, now)
	if s.isSuspect(now) {
		t.Error("a cancelled request says nothing about the drive")
	}
}

func TestReportsAreRememberedWithinBounds(t *testing.T) {
	var m recentMap
	now := time.Now()
	k := badKey{ident.New(), 1}
	if !m.first(k, now) || m.first(k, now) || !m.first(k, now.Add(badForget)) {
		t.Error("a report must count once within badForget")
	}
	for range 3 * badMemory {
		m.first(badKey{ident.New(), 0}, now)
	}
	if len(m.m) > badMemory {
		t.Errorf("%d reports remembered", len(m.m))
	}
}

func TestBadConfigurationIsRefusedAltogether(t *testing.T) {
	err := Config{MaxInline: 1 << 20, ReadTimeout: -1, LateCount: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"node number", "start id", "inline limit", "negative duration", "late shards"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q says nothing about %q", err, want)
		}
	}
	good := Config{Node: 1, StartID: ident.New()}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := New(good, Deps{}); err == nil {
		t.Error("an engine without dependencies was made")
	}
}

func TestSlabsCoverTheBodyAndTheShards(t *testing.T) {
	pool := shard.NewPool(64 << 20)
	defer pool.Close()
	for _, p := range profiles {
		for _, size := range sizesFor(p) {
			g, err := erasure.NewGeometry(p, int64(size))
			if err != nil {
				continue
			}
			var body, per int64
			for num := range slabCount(g) {
				s, err := newSlab(t.Context(), pool, g, num)
				if err != nil {
					t.Fatal(err)
				}
				if s.bodyOff != body || s.first*int64(g.CellSize) != per || s.body <= 0 || s.per*g.N() > slabSize(g) {
					t.Fatalf("%s, %d bytes, slab %d: %+v", p, size, num, s)
				}
				body, per = body+s.body, per+int64(s.per)
				s.release()
			}
			if body != int64(size) || per != g.ShardLen() {
				t.Fatalf("%s, %d bytes: slabs hold %d of the body and %d of %d of the shard", p, size, body, per, g.ShardLen())
			}
		}
	}
}
