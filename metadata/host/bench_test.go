package host

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"objstore/internal/ident"
)

// blob is a state machine that stores what it is given: the shape of a small PUT with an inline body.
type blob struct{}

func (blob) Apply(rw ReadWriter, _ ident.Group, _ uint64, data []byte) ([]byte, error) {
	if _, _, err := rw.Get(data[:16]); err != nil {
		return nil, err
	}
	if err := rw.Set(data[:16], data[:200]); err != nil {
		return nil, err
	}
	return nil, rw.Set(append([]byte("d/"), data[:16]...), data)
}
func (blob) Stamp(data []byte, _ int64) []byte { return data }
func (blob) Applied(ident.Group, uint64)       {}

func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// BenchmarkPropose measures 4 KiB proposals of 64 callers over 8 groups with three replicas each; cpu-us/op is the
// whole process: three replicas and the callers.
func BenchmarkPropose(b *testing.B) {
	b.Run("mem", func(b *testing.B) { benchPropose(b, func(ident.Node, *Config) {}) })
	b.Run("disk", func(b *testing.B) {
		benchPropose(b, func(_ ident.Node, cfg *Config) { cfg.FS, cfg.Dir = vfs.Default, b.TempDir() })
	})
}

func benchPropose(b *testing.B, tweak func(ident.Node, *Config)) {
	const callers, groups = 64, 8
	c := newCluster(b, 3, func(n ident.Node, cfg *Config) {
		cfg.TickInterval = 100 * time.Millisecond
		cfg.StateMachines = func(ident.Group) StateMachine { return blob{} }
		tweak(n, cfg)
	})
	leaders := benchLeaders(b, c, groups)
	body := make([]byte, 4096)
	if _, err := rand.Read(body); err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	start := cpuTime()
	for range callers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				data := append([]byte(nil), body...)
				copy(data, time.Now().String()[11:27])
				data[0], data[1], data[2], data[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
				g := ident.Group(1 + i%groups)
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				if _, err := leaders[g].Propose(ctx, g, data); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-start).Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
	var syncs, batches uint64
	for _, h := range c.hosts {
		m := h.Metrics()
		syncs, batches = syncs+m.Syncs, batches+m.BatchesOut
	}
	b.ReportMetric(float64(syncs)/float64(b.N), "syncs/op")
	b.ReportMetric(float64(batches)/float64(b.N), "batches/op")
	b.SetBytes(4096)
	logStores(b, c)
}

// BenchmarkReadIndex measures linearizable reads of 8 callers.
func BenchmarkReadIndex(b *testing.B) {
	c := newCluster(b, 3, func(_ ident.Node, cfg *Config) { cfg.TickInterval = 100 * time.Millisecond })
	leaders := benchLeaders(b, c, 8)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	start := cpuTime()
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				g := ident.Group(1 + i%8)
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				if _, err := leaders[g].ReadIndex(ctx, g); err != nil {
					b.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-start).Microseconds())/float64(b.N), "cpu-us/op")
}

// benchLeaders makes groups and spreads their leaders over the hosts.
func benchLeaders(b *testing.B, c *cluster, groups int) map[ident.Group]*testHost {
	leaders := map[ident.Group]*testHost{}
	for g := ident.Group(1); g <= ident.Group(groups); g++ {
		c.group = g
		c.bootstrap(1, 2, 3)
		if err := c.hosts[1+ident.Node(g)%3].Campaign(c.ctx(), g); err != nil {
			b.Fatal(err)
		}
		leaders[g] = c.leader()
	}
	return leaders
}

func logStores(b *testing.B, c *cluster) {
	if testing.Verbose() {
		h := c.hosts[1]
		b.Logf("log store\n%s\nstate store\n%s", h.stores.log.db.Metrics(), h.stores.state.db.Metrics())
	}
}
