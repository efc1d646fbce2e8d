package store

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/internal/wire/wiretest"
	"objstore/shard"
	"objstore/shard/shardtest"
	"objstore/shard/tcp"
)

// current is the store of the moment: formatting a drive takes closing it.
type current struct{ s atomic.Pointer[Store] }

func (c *current) Create(ctx context.Context, spec shard.Spec) (shard.Writer, error) {
	return c.s.Load().Create(ctx, spec)
}
func (c *current) Read(ctx context.Context, r shard.ReadRequest, dst []byte) ([]uint32, error) {
	return c.s.Load().Read(ctx, r, dst)
}
func (c *current) Stat(ctx context.Context, r shard.Ref, verify bool) (shard.Info, error) {
	return c.s.Load().Stat(ctx, r, verify)
}
func (c *current) Delete(ctx context.Context, refs []shard.Ref) []error {
	return c.s.Load().Delete(ctx, refs)
}
func (c *current) List(ctx context.Context, d ident.Drive, after ident.ID, i uint8, max int) ([]shard.Info, error) {
	return c.s.Load().List(ctx, d, after, i, max)
}

// subject is a fresh store with the hooks that a real drive allows. A hung device and a full drive have tests of their
// own here: Stat and List answer from the index whatever the device does.
func subject(t *testing.T) shardtest.Subject {
	r := newRig(t, 1, nil)
	c := &current{}
	c.s.Store(r.Store)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return shardtest.Subject{
		Endpoint: c, Drive: 1,
		SetMinEpoch: func(e uint64) { check(c.s.Load().SetMinEpoch(1, e)) },
		Format: func() {
			r.close()
			d := &r.cfg.Drives[0]
			d.Path, d.Incarnation, d.UUID = t.TempDir(), d.Incarnation+1, ident.New()
			check(Format(nil, r.cfg.Cluster, *d))
			r.open()
			c.s.Store(r.Store)
		},
		Corrupt:   func(ref shard.Ref, offset uint64) bool { return flipCell(t, c, ref, offset) },
		SetFenced: func(bool) { check(c.s.Load().Fence(1, oerr.Errorf("test", oerr.Internal, "fenced by the suite"))) },
	}
}

// flipCell changes one bit of a shard's cells on the drive, where Stat says it is.
func flipCell(t *testing.T, ep shard.Endpoint, ref shard.Ref, offset uint64) bool {
	info, err := ep.Stat(context.Background(), ref, false)
	if err != nil || info.State != shard.StateOK {
		return false
	}
	f, err := os.OpenFile(info.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(info.Offset + shard.Align + offset) // the header is one page
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestTheStorePassesTheShardSuite(t *testing.T) { shardtest.Run(t, subject) }

// The transport passes the whole suite over memory, the store by itself; what only the two together can show is here.
func TestTheStorePassesTheShardSuiteOverPlaintextTCP(t *testing.T) {
	shardtest.Run(t, func(t *testing.T) shardtest.Subject {
		s := subject(t)
		pool := shard.NewPool(64 << 20)
		s.Endpoint, s.Pools = overTCP(t, s.Endpoint, pool), []*shard.Pool{pool}
		return s
	}, "comes back", "dies with its context", "delete cancels", "many shards", "header records")
}

// overTCP puts ep behind an internode port and returns the far side's view of it.
func overTCP(t *testing.T, ep shard.Endpoint, pool *shard.Pool) shard.Endpoint {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pki := wiretest.New(t)
	ws, err := wire.NewServer(wire.ServerConfig{Self: 2, TLS: pki.Server(2), PeerOf: wiretest.PeerOf})
	check(err)
	tickets := tcp.NewTickets()
	srv, err := tcp.NewServer(ep, pool, tcp.ServerConfig{Tickets: tickets})
	check(err)
	ws.Handle(wire.MethodShardTicket, wire.RoleNode, tickets.Handler())
	ws.HandlePlain(tcp.PlainMagic, srv.ServePlain)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	served := make(chan error, 1)
	go func() { served <- ws.Serve(l) }()
	cfg := pki.Client(1)
	resolve := func(ident.Node) (string, bool) { return l.Addr().String(), true }
	rpc, err := wire.NewClient(wire.ClientConfig{Self: 1, Resolve: resolve, TLS: func(ident.Node) *tls.Config { return cfg }, PeerOf: wiretest.PeerOf})
	check(err)
	client, err := tcp.NewClient(tcp.Config{Resolve: resolve, Caller: rpc})
	check(err)
	t.Cleanup(func() {
		client.Close()
		rpc.Close()
		ws.Close()
		check(<-served)
		pool.Close()
	})
	return client.Endpoint(2)
}
