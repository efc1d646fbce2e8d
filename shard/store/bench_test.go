package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/shard"
)

// BenchmarkPut writes shards to four drives from 32 goroutines, every one of them synced.
func BenchmarkPut(b *testing.B) {
	for _, n := range []uint64{8 << 10, 64 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			r := newRig(b, 4, func(c *Config) {
				onDisk(b)(c)
				for i := range c.Drives {
					c.Drives[i].SegmentSize = maxSegment
				}
			})
			buf, err := r.pool.Get(context.Background(), int(min(n, 1<<20)))
			if err != nil {
				b.Fatal(err)
			}
			defer buf.Release()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			parallel(b, 32, func() bool {
				i := next.Add(1)
				if i > int64(b.N) {
					return false
				}
				spec := specOf(ident.Drive(i%4+1), n)
				w, err := r.Create(context.Background(), spec)
				for off := uint64(0); err == nil && off < n; off += uint64(len(buf.B)) {
					err = w.Append(context.Background(), buf, buf.B, shard.AppendCRCs(nil, spec.Blob, spec.Index, off/shard.BlockSize, buf.B))
				}
				if err == nil {
					_, err = w.Commit(context.Background())
				}
				if err != nil {
					b.Error(err)
				}
				return err == nil
			})
		})
	}
}

// BenchmarkGet reads shards from the page cache with 8 goroutines.
func BenchmarkGet(b *testing.B) {
	for _, n := range []uint64{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			r := newRig(b, 4, onDisk(b))
			var specs []shard.Spec
			for i := range 64 {
				spec := specOf(ident.Drive(i%4+1), n)
				r.mustPut(spec)
				r.mustCheck(&spec)
				specs = append(specs, spec)
			}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			parallel(b, 8, func() bool {
				dst := make([]byte, n)
				for {
					i := next.Add(1)
					if i > int64(b.N) {
						return false
					}
					if _, err := r.Read(context.Background(), shard.ReadRequest{Ref: specs[i%64].Ref, Length: n}, dst); err != nil {
						b.Error(err)
						return false
					}
				}
			})
		})
	}
}

// parallel runs f on n goroutines until it says no, and reports the processor time of this process for each operation.
func parallel(b *testing.B, n int, f func() bool) {
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	defer func() {
		unix.Getrusage(unix.RUSAGE_SELF, &after)
		cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
		b.ReportMetric(float64(cpu)/1e3/float64(b.N), "cpu-µs/op")
	}()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for f() {
			}
		})
	}
	wg.Wait()
}
