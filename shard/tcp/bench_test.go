package tcp_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"objstore/internal/ident"
	"objstore/shard"
)

func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// sink is an endpoint that does nothing: what is measured is the transport, both ends.
type sink struct{ crcs []uint32 }

func (s *sink) Create(context.Context, shard.Spec) (shard.Writer, error) { return s, nil }
func (s *sink) Read(_ context.Context, r shard.ReadRequest, dst []byte) ([]uint32, error) {
	return s.crcs[:shard.Blocks(uint64(len(dst)))], nil
}
func (s *sink) Stat(context.Context, shard.Ref, bool) (shard.Info, error) { return shard.Info{}, nil }
func (s *sink) Delete(_ context.Context, refs []shard.Ref) []error        { return make([]error, len(refs)) }
func (s *sink) List(context.Context, ident.Drive, ident.ID, uint8, int) ([]shard.Info, error) {
	return nil, nil
}
func (s *sink) Append(context.Context, *shard.Buf, []byte, []uint32) error { return nil }
func (s *sink) Commit(context.Context) (shard.Ack, error)                  { return shard.Ack{}, nil }
func (s *sink) Abort(error)                                                {}

func BenchmarkShard(b *testing.B) {
	for _, plain := range []bool{true, false} {
		for _, op := range []string{"write", "read"} {
			for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 32 << 20} {
				name := fmt.Sprintf("plain=%v/%s/%dKiB", plain, op, size>>10)
				b.Run(name, func(b *testing.B) { bench(b, plain, op, size) })
			}
		}
	}
}

func bench(b *testing.B, plain bool, op string, size int) {
	n := start(b, &sink{crcs: make([]uint32, 1024)}, options{plain: plain})
	s := spec(1, uint64(size))
	pool := shard.NewPool(256 << 20)
	defer pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// Full cells for writes: checksums are computed by the encoder, outside of what is measured.
	crcs := make([]uint32, 0, shard.Blocks(uint64(size)))
	crcs = shard.AppendCRCs(crcs, s.Blob, s.Index, 0, make([]byte, size))
	one := func(buf *shard.Buf) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if op == "read" {
			for off := 0; off < size; off += len(buf.B) {
				if _, err := n.ep.Read(ctx, shard.ReadRequest{Ref: s.Ref, Offset: uint64(off), Length: uint64(len(buf.B))}, buf.B); err != nil {
					return err
				}
			}
			return nil
		}
		w, err := n.ep.Create(ctx, s)
		if err != nil {
			return err
		}
		for off := 0; off < size; off += len(buf.B) {
			first := off / shard.BlockSize
			if err := w.Append(ctx, buf, buf.B, crcs[first:first+shard.Blocks(uint64(len(buf.B)))]); err != nil {
				return err
			}
		}
		_, err = w.Commit(ctx)
		return err
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.SetParallelism(4)
	var failed atomic.Bool
	begin := cpu()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		buf, err := pool.Get(ctx, min(size, 1<<20))
		if err != nil {
			b.Error(err)
			return
		}
		defer buf.Release()
		clear(buf.B)
		for pb.Next() {
			if err := one(buf); err != nil && !failed.Swap(true) {
				b.Error(err)
			}
		}
	})
	used := cpu() - begin
	b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N), "cpu-µs/op")
	b.ReportMetric(used.Seconds()/(float64(b.N)*float64(size)/(1<<30)), "cpu-s/GiB")
}
