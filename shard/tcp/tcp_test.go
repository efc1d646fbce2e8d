package tcp_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/internal/ident"
	"objstore/internal/wire"
	"objstore/internal/wire/wiretest"
	"objstore/shard"
	"objstore/shard/shardtest"
	"objstore/shard/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is node 2 with its shards on the internode port, and node 1's client.
type node struct {
	pki     *wiretest.PKI
	wire    *wire.Server
	rpc     *wire.Client
	server  *tcp.Server
	client  *tcp.Client
	tickets *tcp.Tickets
	pool    *shard.Pool
	addr    string
	ep      shard.Endpoint // what node 1 sees
}

type options struct {
	plain  bool
	pool   int64
	client tcp.Config
	server tcp.ServerConfig
}

func start(t testing.TB, ep shard.Endpoint, o options) *node {
	t.Helper()
	if o.pool == 0 {
		o.pool = 64 << 20
	}
	n := &node{pki: wiretest.New(t), tickets: tcp.NewTickets(), pool: shard.NewPool(o.pool)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	n.wire, err = wire.NewServer(wire.ServerConfig{Self: 2, TLS: n.pki.Server(2), PeerOf: wiretest.PeerOf})
	check(err)
	o.server.Tickets = n.tickets
	n.server, err = tcp.NewServer(ep, n.pool, o.server)
	check(err)
	n.wire.Handle(wire.MethodShardTicket, wire.RoleNode, n.tickets.Handler())
	n.wire.HandleConn(wire.ALPNShard, n.server.ServeConn)
	n.wire.HandlePlain(tcp.PlainMagic, n.server.ServePlain)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	n.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- n.wire.Serve(l) }()

	cfg := n.pki.Client(1)
	tlsOf := func(ident.Node) *tls.Config { return cfg }
	resolve := func(x ident.Node) (string, bool) { return n.addr, x == 2 }
	n.rpc, err = wire.NewClient(wire.ClientConfig{Self: 1, Resolve: resolve, TLS: tlsOf, PeerOf: wiretest.PeerOf, MaxBackoff: 50 * time.Millisecond})
	check(err)
	o.client.Resolve, o.client.PeerOf, o.client.Caller = resolve, wiretest.PeerOf, n.rpc
	o.client.MaxBackoff = 50 * time.Millisecond
	if !o.plain {
		o.client.TLS = tlsOf
	}
	n.client, err = tcp.NewClient(o.client)
	check(err)
	n.ep = n.client.Endpoint(2)
	t.Cleanup(func() {
		n.client.Close()
		n.rpc.Close()
		n.wire.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if used := n.pool.InUse(); used != 0 {
			t.Errorf("%d bytes of the server's pool are out after Close", used)
		}
		n.pool.Close()
	})
	return n
}

func TestTLSPassesTheSuite(t *testing.T)       { suite(t, false) }
func TestPlaintextPassesTheSuite(t *testing.T) { suite(t, true) }

func suite(t *testing.T, plain bool) {
	shardtest.Run(t, func(t *testing.T) shardtest.Subject {
		m := shardtest.NewMem(3)
		n := start(t, m, options{plain: plain})
		s := shardtest.MemSubject(m, 3)
		s.Endpoint, s.Pools = n.ep, []*shard.Pool{n.pool}
		return s
	})
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// restart replaces the server by a new one on the same address: connections are cut, tickets are void.
func (n *node) restart(t *testing.T, ep shard.Endpoint) {
	t.Helper()
	n.wire.Close()
	ws, err := wire.NewServer(wire.ServerConfig{Self: 2, TLS: n.pki.Server(2), PeerOf: wiretest.PeerOf})
	if err != nil {
		t.Fatal(err)
	}
	tickets := tcp.NewTickets()
	s, err := tcp.NewServer(ep, n.pool, tcp.ServerConfig{Tickets: tickets})
	if err != nil {
		t.Fatal(err)
	}
	ws.Handle(wire.MethodShardTicket, wire.RoleNode, tickets.Handler())
	ws.HandleConn(wire.ALPNShard, s.ServeConn)
	ws.HandlePlain(tcp.PlainMagic, s.ServePlain)
	l, err := net.Listen("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ws.Serve(l) }()
	t.Cleanup(func() {
		ws.Close()
		<-served
	})
}
