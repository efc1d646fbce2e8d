package wire_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/internal/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is node 1 calling node 2.
type pair struct {
	pki    *wiretest.PKI
	server *wire.Server
	client *wire.Client
	addr   string
}

func newPair(t testing.TB, sc wire.ServerConfig, cc wire.ClientConfig) *pair {
	t.Helper()
	p := &pair{pki: wiretest.New(t)}
	sc.Self, sc.TLS, sc.PeerOf = 2, p.pki.Server(2), wiretest.PeerOf
	s, err := wire.NewServer(sc)
	if err != nil {
		t.Fatal(err)
	}
	p.server = s
	p.addr = listen(t, s)
	s.Handle(wire.MethodPing, wire.RoleNode, func(_ context.Context, _ wire.Peer, req []byte) ([]byte, error) { return req, nil })
	cfg := p.pki.Client(1)
	cc.Self = 1
	cc.TLS = func(ident.Node) *tls.Config { return cfg }
	cc.PeerOf = wiretest.PeerOf
	if cc.Resolve == nil {
		cc.Resolve = func(n ident.Node) (string, bool) { return p.addr, n == 2 }
	}
	if p.client, err = wire.NewClient(cc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.client.Close(); p.server.Close() })
	return p
}

func listen(t testing.TB, s *wire.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); <-time.After(2 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("not within 5 s: %s", what)
}

func TestCallsOfEverySizeComeBackWhole(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	for _, n := range []int{0, 1, 19, 4096, 16<<10 - 1, 16 << 10, 16<<10 + 1, 100_000, 1 << 20, wire.DefaultMaxFrame} {
		req := make([]byte, n)
		rand.NewChaCha8([32]byte{byte(n)}).Read(req)
		got, err := p.client.Call(within(t, 10*time.Second), 2, wire.MethodPing, req)
		if err != nil || !bytes.Equal(got, req) {
			t.Fatalf("echo of %d bytes: got %d bytes, error %v", n, len(got), err)
		}
	}
}

func TestManyCallsShareOneConnectionAndGetTheirOwnAnswers(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 100 {
				req := make([]byte, 8+rng.IntN(40_000))
				binary.LittleEndian.PutUint64(req, uint64(g*1000+i))
				got, err := p.client.Call(within(t, 20*time.Second), 2, wire.MethodPing, req)
				if err != nil || !bytes.Equal(got, req) {
					t.Errorf("caller %d call %d: %d bytes, error %v", g, i, len(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := p.server.Metrics().Accepted; n != 1 {
		t.Errorf("%d connections were made, expected 1", n)
	}
}

func TestErrorsKeepTheirKindAndCorruptMarker(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	var answer atomic.Pointer[error]
	p.server.Handle(wire.MethodQuery, wire.RoleNode, func(context.Context, wire.Peer, []byte) ([]byte, error) { return nil, *answer.Load() })
	for k := oerr.Internal; k <= oerr.Closed; k++ {
		var err error = oerr.Errorf("far", k, "something %d", k)
		answer.Store(&err)
		_, got := p.client.Call(within(t, 5*time.Second), 2, wire.MethodQuery, nil)
		if oerr.KindOf(got) != k || oerr.IsCorrupt(got) != (k == oerr.Corrupt) {
			t.Errorf("kind %v came back as %v (%v)", k, oerr.KindOf(got), got)
		}
	}
	var err error = oerr.E("outer", oerr.Unavailable, oerr.Errorf("inner", oerr.Corrupt, "bad block"))
	answer.Store(&err)
	_, got := p.client.Call(within(t, 5*time.Second), 2, wire.MethodQuery, nil)
	if !oerr.Is(got, oerr.Unavailable) || !oerr.IsCorrupt(got) {
		t.Errorf("a Corrupt marker below Unavailable came back as %v, corrupt %v", got, oerr.IsCorrupt(got))
	}
}

func TestOneWayMessagesArriveInOrder(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	const n = 5000
	var got []uint32
	done := make(chan struct{})
	p.server.Handle(wire.MethodRaft, wire.RoleNode, func(_ context.Context, peer wire.Peer, msg []byte) ([]byte, error) {
		if peer.Node != 1 {
			t.Errorf("message from node %d, expected 1", peer.Node)
		}
		if got = append(got, binary.LittleEndian.Uint32(msg)); len(got) == n {
			close(done)
		}
		return nil, nil
	})
	for i := range n {
		if !p.client.Send(2, wire.MethodRaft, binary.LittleEndian.AppendUint32(nil, uint32(i))) {
			t.Fatalf("message %d was dropped: %+v", i, p.client.Metrics().Dropped)
		}
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("not all messages arrived in 10 s")
	}
	for i, v := range got {
		if v != uint32(i) {
			t.Fatalf("message %d arrived at place %d", v, i)
		}
	}
}

func TestCallsToSelfNeedNoConnection(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	got := make(chan string, 4)
	p.server.Handle(wire.MethodRaft, wire.RoleNode, func(_ context.Context, peer wire.Peer, msg []byte) ([]byte, error) {
		got <- fmt.Sprintf("%d:%s", peer.Node, msg)
		return nil, nil
	})
	c, err := wire.NewClient(wire.ClientConfig{Self: 2, Local: p.server, TLS: func(ident.Node) *tls.Config { return nil },
		Resolve: func(ident.Node) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := []byte("hello")
	reply, err := c.Call(within(t, time.Second), 2, wire.MethodPing, req)
	if err != nil || string(reply) != "hello" {
		t.Fatalf("call to self: %q, %v", reply, err)
	}
	req[0] = 'j' // the request may be reused: the reply must not be its memory
	if string(reply) != "hello" {
		t.Error("the reply shares the request's memory")
	}
	c.Send(2, wire.MethodRaft, []byte("a"))
	c.Send(2, wire.MethodRaft, []byte("b"))
	if a, b := <-got, <-got; a != "2:a" || b != "2:b" {
		t.Errorf("messages to self: %s, %s", a, b)
	}
	if n := p.server.Metrics().Accepted; n != 0 {
		t.Errorf("%d connections were made, expected none", n)
	}
}

func TestDeadlineEndsTheCallAndTheHandler(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	ended := make(chan error, 1)
	p.server.Handle(wire.MethodQuery, wire.RoleNode, func(ctx context.Context, _ wire.Peer, _ []byte) ([]byte, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	})
	if _, err := p.client.Call(within(t, 10*time.Second), 2, wire.MethodPing, nil); err != nil {
		t.Fatal(err) // the connection is up: the deadline is the call's alone
	}
	start := time.Now()
	_, err := p.client.Call(within(t, 200*time.Millisecond), 2, wire.MethodQuery, nil)
	if !oerr.Is(err, oerr.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Errorf("after %v: %v, expected the deadline's end", time.Since(start), err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the handler's context ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the handler's context did not end")
	}
	if _, err := p.client.Call(context.Background(), 2, wire.MethodPing, nil); !oerr.Is(err, oerr.InvalidArgument) {
		t.Errorf("a call without a deadline: %v", err)
	}
}

func TestAnUnreachableNodeFailsFastAndThenAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close() // nobody listens there now
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{MaxBackoff: time.Hour, Resolve: func(ident.Node) (string, bool) { return addr, true }})
	for i := range 50 {
		if _, err := p.client.Call(within(t, 5*time.Second), 2, wire.MethodPing, nil); !oerr.Is(err, oerr.Unavailable) {
			t.Fatalf("call %d: %v, expected unavailable", i, err)
		}
	}
	eventually(t, "few dials", func() bool { return p.client.Metrics().Dials < 30 })
	p.client.Reset(2)
	before := p.client.Metrics().Dials
	p.client.Call(within(t, 5*time.Second), 2, wire.MethodPing, nil)
	if p.client.Metrics().Dials != before+1 {
		t.Error("Reset did not allow a dial at once")
	}
}

func TestABrokenConnectionFailsItsCallsAndIsDialledAgain(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	entered := make(chan struct{})
	p.server.Handle(wire.MethodQuery, wire.RoleNode, func(ctx context.Context, _ wire.Peer, _ []byte) ([]byte, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	result := make(chan error, 1)
	go func() {
		_, err := p.client.Call(within(t, 30*time.Second), 2, wire.MethodQuery, nil)
		result <- err
	}()
	<-entered
	p.server.Close()
	if err := <-result; !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("call on a broken connection: %v, expected unavailable", err)
	}
	s2, err := wire.NewServer(wire.ServerConfig{TLS: p.pki.Server(2), PeerOf: wiretest.PeerOf})
	if err != nil {
		t.Fatal(err)
	}
	s2.Handle(wire.MethodPing, wire.RoleNode, func(context.Context, wire.Peer, []byte) ([]byte, error) { return nil, nil })
	defer s2.Close()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	go s2.Serve(l)
	eventually(t, "a call to the restarted node", func() bool {
		_, err := p.client.Call(within(t, time.Second), 2, wire.MethodPing, nil)
		return err == nil
	})
}

func TestAnotherNodeAtTheAddressIsNotBelieved(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{Resolve: nil})
	cfg := p.pki.Client(1)
	c, err := wire.NewClient(wire.ClientConfig{Self: 1, Resolve: func(ident.Node) (string, bool) { return p.addr, true },
		TLS: func(ident.Node) *tls.Config { return cfg }, PeerOf: wiretest.PeerOf})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Call(within(t, 5*time.Second), 3, wire.MethodPing, nil); !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("call to node 3 answered by node 2: %v", err)
	}
	if c.Metrics().DialErrors[wire.ReasonWrongNode] != 1 {
		t.Errorf("dial errors: %v", c.Metrics().DialErrors)
	}
}

func TestMoreThanMaxConcurrentCallsAreBusy(t *testing.T) {
	p := newPair(t, wire.ServerConfig{MaxConcurrent: 2}, wire.ClientConfig{})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	var running atomic.Int32
	p.server.Handle(wire.MethodQuery, wire.RoleNode, func(context.Context, wire.Peer, []byte) ([]byte, error) {
		running.Add(1)
		<-release
		return nil, nil
	})
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := p.client.Call(within(t, 10*time.Second), 2, wire.MethodQuery, nil)
			results <- err
		}()
	}
	eventually(t, "two calls running", func() bool { return running.Load() == 2 })
	if _, err := p.client.Call(within(t, 5*time.Second), 2, wire.MethodQuery, nil); !oerr.Is(err, oerr.Busy) {
		t.Errorf("third call: %v, expected busy", err)
	}
	free()
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("admitted call: %v", err)
		}
	}
}

func TestRequestsInFlightAreBoundedInBytes(t *testing.T) {
	const frame = 100 << 10
	p := newPair(t, wire.ServerConfig{MaxInFlight: 3 * frame}, wire.ClientConfig{})
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	var running atomic.Int32
	p.server.Handle(wire.MethodQuery, wire.RoleNode, func(context.Context, wire.Peer, []byte) ([]byte, error) {
		running.Add(1)
		<-release
		return nil, nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := p.client.Call(within(t, 10*time.Second), 2, wire.MethodQuery, make([]byte, frame)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "three calls running", func() bool { return running.Load() >= 3 })
	// The fourth is not read before one of the three ends; give a wrong implementation the time to show itself.
	<-time.After(50 * time.Millisecond)
	if n := running.Load(); n != 3 {
		t.Errorf("%d calls of %d bytes are in flight, expected 3", n, frame)
	}
	free()
	wg.Wait()
}

func TestWhoMayCallWhat(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	p.server.Handle(wire.MethodJoin, wire.RoleNone, func(_ context.Context, peer wire.Peer, req []byte) ([]byte, error) {
		return fmt.Appendf(nil, "role %d node %d: %s", peer.Role, peer.Node, req), nil
	})
	call := func(cfg *tls.Config, alpn string, m wire.Method) (string, error) {
		r, err := wire.CallOnce(within(t, 5*time.Second), p.addr, cfg, alpn, m, []byte("x"))
		return string(r), err
	}
	if r, err := call(p.pki.Client(0), wire.ALPNJoin, wire.MethodJoin); err != nil || r != "role 0 node 0: x" {
		t.Errorf("join without a certificate: %q, %v", r, err)
	}
	if r, err := call(p.pki.Client(7), wire.ALPNJoin, wire.MethodJoin); err != nil || r != "role 0 node 0: x" {
		t.Errorf("join with a certificate gets no role by it: %q, %v", r, err)
	}
	if _, err := call(p.pki.Client(7), wire.ALPNRPC, wire.MethodPing); err != nil {
		t.Errorf("ping with a certificate: %v", err)
	}
	denied := []struct {
		name string
		cfg  *tls.Config
		alpn string
		m    wire.Method
		kind oerr.Kind
	}{
		{"ping without a certificate on the join protocol", p.pki.Client(0), wire.ALPNJoin, wire.MethodPing, oerr.PermissionDenied},
		{"join without a certificate on the rpc protocol", p.pki.Client(0), wire.ALPNRPC, wire.MethodJoin, oerr.Unavailable},
		{"a certificate that names no node", p.pki.Stranger(), wire.ALPNRPC, wire.MethodPing, oerr.Unavailable},
		{"a certificate of another authority", wiretest.New(t).Client(1), wire.ALPNRPC, wire.MethodPing, oerr.Unavailable},
		{"a protocol nobody serves", p.pki.Client(7), wire.ALPNShard, wire.MethodPing, oerr.Unavailable},
		{"an unknown method", p.pki.Client(7), wire.ALPNRPC, 63, oerr.NotImplemented},
		{"a method beyond the table", p.pki.Client(7), wire.ALPNRPC, 60000, oerr.NotImplemented},
	}
	for _, c := range denied {
		if r, err := call(c.cfg, c.alpn, c.m); !oerr.Is(err, c.kind) {
			t.Errorf("%s: got %q, %v, expected %v", c.name, r, err, c.kind)
		}
	}
	eventually(t, "refusals counted", func() bool {
		m := p.server.Metrics()
		return m.Denied == 1 && m.Ended[wire.ReasonIdentity] >= 1 && m.Ended[wire.ReasonProtocol] >= 1 && m.Ended[wire.ReasonHandshake] >= 1
	})
}

func TestGarbageIsClosedAndCounted(t *testing.T) {
	p := newPair(t, wire.ServerConfig{HandshakeTimeout: 200 * time.Millisecond}, wire.ClientConfig{})
	send := func(b []byte) {
		t.Helper()
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write(b)
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: the connection was not closed", b)
		}
	}
	send([]byte("GET / HTTP/1.1\r\n\r\n"))
	eventually(t, "plaintext refused", func() bool { return p.server.Metrics().Ended[wire.ReasonPlaintext] == 1 })
	p.server.HandlePlain("objshrd1", func(context.Context, net.Conn) {})
	send([]byte("GET / HTTP/1.1\r\n\r\n"))
	send([]byte("objshrdX"))
	eventually(t, "garbage counted", func() bool { return p.server.Metrics().Ended[wire.ReasonGarbage] == 2 })
	send([]byte("\x16\x03\x01garbage"))
	send([]byte("\x16\x03\x01")) // and then nothing: the handshake deadline ends it
	send(nil)
	eventually(t, "handshakes counted", func() bool { return p.server.Metrics().Ended[wire.ReasonHandshake] == 3 })

	conn, err := wire.DialTLS(within(t, 5*time.Second), p.addr, p.pki.Client(1), wire.ALPNRPC, time.Second, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.NetConn().Close()
	conn.Write(bytes.Repeat([]byte("x"), 100))
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("garbage inside TLS got an answer")
	}
	eventually(t, "garbage in TLS counted", func() bool { return p.server.Metrics().Ended[wire.ReasonGarbage] == 3 })
	if _, err := p.client.Call(within(t, 5*time.Second), 2, wire.MethodPing, nil); err != nil {
		t.Errorf("a good call afterwards: %v", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	p := newPair(t, wire.ServerConfig{MaxPending: 2, MaxConns: 4}, wire.ClientConfig{})
	for range 3 {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "third silent connection refused", func() bool { return p.server.Metrics().Ended[wire.ReasonTooManyNew] == 1 })
	if n := p.server.Metrics().Conns; n != 2 {
		t.Errorf("%d connections are open, expected 2", n)
	}
}

func TestIdleConnectionsCloseAndComeBack(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{})
	ping := func() {
		t.Helper()
		if _, err := p.client.Call(within(t, 5*time.Second), 2, wire.MethodPing, nil); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	p.client.CloseIdle()
	eventually(t, "connection closed at both ends", func() bool { return p.server.Metrics().Conns == 0 && p.client.Metrics().Conns == 0 })
	ping()
}

func TestAPeerThatDoesNotReadCannotHoldMemoryOrBlockSend(t *testing.T) {
	p := newPair(t, wire.ServerConfig{}, wire.ClientConfig{MaxQueued: 1 << 20})
	block := make(chan struct{})
	p.server.Handle(wire.MethodRaft, wire.RoleNode, func(ctx context.Context, _ wire.Peer, _ []byte) ([]byte, error) {
		select {
		case <-block:
		case <-ctx.Done():
		}
		return nil, nil
	})
	dropped := false
	for i := 0; i < 2000 && !dropped; i++ { // 128 MiB, far above what sockets buffer
		start := time.Now()
		dropped = !p.client.Send(2, wire.MethodRaft, make([]byte, 64<<10))
		if d := time.Since(start); d > time.Second {
			t.Fatalf("Send blocked for %v", d)
		}
	}
	if !dropped || p.client.Metrics().Dropped[wire.ReasonQueueFull] != 1 {
		t.Errorf("dropped %v, metrics %v", dropped, p.client.Metrics().Dropped)
	}
	// Calls have a connection of their own.
	if _, err := p.client.Call(within(t, 5*time.Second), 2, wire.MethodPing, nil); err != nil {
		t.Errorf("a call beside a full one-way queue: %v", err)
	}
	close(block)
}
