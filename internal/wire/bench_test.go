package wire_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"objstore/internal/wire"
)

func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkCall measures a round trip over loopback TLS, both ends in this process.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name       string
		size       int
		concurrent int
	}{{"256B/1", 256, 1}, {"256B/8", 256, 8}, {"256B/32", 256, 32}, {"4KiB/8", 4 << 10, 8}, {"reply200KiB/8", 200 << 10, 8}} {
		b.Run(c.name, func(b *testing.B) {
			p := newPair(b, wire.ServerConfig{}, wire.ClientConfig{})
			reply := make([]byte, c.size)
			p.server.Handle(wire.MethodQuery, wire.RoleNode, func(context.Context, wire.Peer, []byte) ([]byte, error) { return reply, nil })
			req := make([]byte, min(c.size, 4<<10))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if _, err := p.client.Call(ctx, 2, wire.MethodQuery, req); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetParallelism(c.concurrent)
			start := cpu()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
					if _, err := p.client.Call(ctx, 2, wire.MethodQuery, req); err != nil {
						b.Error(err)
					}
					cancel()
				}
			})
			b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}
