package object

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"objstore/erasure"
	"objstore/internal/ident"
	"objstore/shard"
	"objstore/shard/shardtest"
)

var benchSizes = []int{4 << 10, 128 << 10, 1 << 20, 64 << 20}

// measure runs f and reports CPU time, which other work on the machine disturbs less than wall time.
func measure(b *testing.B, size int, f func() error) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	cpu := float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / float64(b.N) / 1e3
	b.ReportMetric(cpu, "cpu-µs/op")
	b.ReportMetric(cpu/1e6*float64(1<<30)/float64(size), "cpu-s/GiB")
}

// BenchmarkPut is the engine's share of a 2+2 put: the drives take the shards and forget them. With md5 there is one
// digest, as the edge has it (0.9 GB/s on one core of the development machine).
func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		for _, digest := range []string{"none", "md5"} {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, digest), func(b *testing.B) {
				h := newHarness(b, erasure.Profile{K: 2, M: 2}, 0)
				h.e.d.Dialer = sink{h.nodes}
				body := randomBody(1, size)
				measure(b, size, func() error {
					req := h.request("key", body)
					if digest == "none" {
						req.Body = Body{Reader: bytes.NewReader(body), Length: int64(size)}
					}
					_, err := h.e.Put(b.Context(), req)
					return err
				})
			})
		}
	}
}

// BenchmarkGet is a 2+2 get from drives in memory, one copy of the bytes included.
func BenchmarkGet(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			h := newHarness(b, erasure.Profile{K: 2, M: 2}, 0)
			h.put("key", randomBody(1, size))
			measure(b, size, func() error {
				return h.open("key").WriteRange(b.Context(), io.Discard, 0, int64(size))
			})
		})
	}
}

// sink is drives that acknowledge shards and keep nothing.
type sink struct{ nodes *shardtest.Cluster }

func (s sink) Endpoint(node ident.Node, length uint64) (shard.Endpoint, string) {
	return sinkEndpoint{s.nodes.Node(node)}, "tcp"
}

type sinkEndpoint struct{ *shardtest.Mem }

func (sinkEndpoint) Create(_ context.Context, spec shard.Spec) (shard.Writer, error) {
	return &sinkWriter{spec: spec}, nil
}

type sinkWriter struct {
	spec shard.Spec
	crcs []uint32
}

func (w *sinkWriter) Append(_ context.Context, _ *shard.Buf, _ []byte, crcs []uint32) error {
	w.crcs = append(w.crcs, crcs...)
	return nil
}

func (w *sinkWriter) Commit(context.Context) (shard.Ack, error) {
	return shard.Ack{Drive: w.spec.Drive, Incarnation: w.spec.Incarnation, Digest: shard.Digest(w.crcs)}, nil
}

func (*sinkWriter) Abort(error) {}
