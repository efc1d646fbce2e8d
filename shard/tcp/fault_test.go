package tcp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/internal/wire/wiretest"
	"objstore/shard"
	"objstore/shard/shardtest"
	"objstore/shard/tcp"
)

func spec(blob byte, length uint64) shard.Spec {
	return shard.Spec{Ref: shard.Ref{Drive: 3, Incarnation: 1, Epoch: 1, Blob: ident.ID{blob}, Index: 1}, K: 2, M: 2, CellSize: 64 << 10, Length: length, Key: "k"}
}

func write(ctx context.Context, ep shard.Endpoint, s shard.Spec, piece int) ([]byte, error) {
	data := bytes.Repeat([]byte{byte(s.Blob[0]), 1, 2, 3, 5, 7, 11, 13}, int(s.Length/8))
	crcs := shard.AppendCRCs(nil, s.Blob, s.Index, 0, data)
	w, err := ep.Create(ctx, s)
	if err != nil {
		return data, err
	}
	for off := 0; off < len(data); off += piece {
		n := min(piece, len(data)-off)
		first := off / shard.BlockSize
		if err := w.Append(ctx, nil, data[off:off+n], crcs[first:first+shard.Blocks(uint64(n))]); err != nil {
			w.Abort(err)
			return data, err
		}
	}
	_, err = w.Commit(ctx)
	w.Abort(err)
	return data, err
}

func read(ctx context.Context, ep shard.Endpoint, s shard.Spec) ([]byte, error) {
	dst := make([]byte, s.Length)
	crcs, err := ep.Read(ctx, shard.ReadRequest{Ref: s.Ref, Length: s.Length}, dst)
	if err == nil {
		err = shard.CheckBlocks(s.Blob, s.Index, 0, dst, crcs)
	}
	return dst, err
}

// proxy forwards bytes to addr and can flip one bit of one direction at an offset counted from when it was armed.
type proxy struct {
	l     net.Listener
	wg    sync.WaitGroup
	up    atomic.Int64 // bytes until the flip, client to server; negative: none
	down  atomic.Int64
	conns sync.Map
}

func newProxy(t *testing.T, addr func() string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l}
	p.up.Store(-1)
	p.down.Store(-1)
	p.wg.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", addr())
			if err != nil {
				a.Close()
				continue
			}
			p.conns.Store(a, nil)
			p.conns.Store(b, nil)
			p.wg.Go(func() { p.pump(b, a, &p.up) })
			p.wg.Go(func() { p.pump(a, b, &p.down) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) cut() {
	p.conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
}

func (p *proxy) pump(dst, src net.Conn, flip *atomic.Int64) {
	defer dst.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if at := flip.Load(); at >= 0 {
			if at < int64(n) {
				buf[at] ^= 0x10
			}
			flip.Store(at - int64(n))
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// through returns a plaintext client of n whose shard connections run through p.
func through(t *testing.T, n *node, p *proxy, cfg tcp.Config) *tcp.Client {
	cfg.Caller, cfg.MaxBackoff = n.rpc, 10*time.Millisecond
	cfg.Resolve = func(ident.Node) (string, bool) { return p.l.Addr().String(), true }
	c, err := tcp.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestABitFlippedOnTheWayInIsNeverStored(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{plain: true})
	p := newProxy(t, func() string { return n.addr })
	c := through(t, n, p, tcp.Config{})
	ep := c.Endpoint(2)
	good := spec(255, 64<<10)
	data, err := write(within(t, 10*time.Second), ep, good, 64<<10) // the connection is up
	if err != nil {
		t.Fatal(err)
	}
	// create frame (24 + spec), data frame (24 + 4), cells, commit frame: everywhere.
	var total int64
	for _, b := range tcp.EncodeWrite(good, data) {
		total += int64(len(b))
	}
	for i, at := range []int64{0, 1, 3, 5, 9, 13, 17, 21, 24, 40, 60, 100, 150, 162, 170, 189, 190, 200, 5000, 30000, 65000, total - 24, total - 20, total - 1} {
		s := spec(byte(i), 64<<10)
		p.up.Store(at)
		sent, err := write(within(t, 10*time.Second), ep, s, 64<<10)
		p.up.Store(-1)
		if err == nil { // the flip hit a connection that was given up before the write went over another one
			if got, err := read(within(t, 10*time.Second), ep, s); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("byte %d flipped: the write succeeded, but what is stored is not what was sent (%v)", at, err)
			}
		}
		if m.Drop(s.Ref) && err != nil {
			t.Errorf("byte %d flipped: the shard was sealed (write said %v)", at, err)
		}
	}
	if m.Shards() != 1 {
		t.Errorf("%d shards are stored, expected 1", m.Shards())
	}
	got, err := read(within(t, 10*time.Second), ep, good)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("the good shard: %v", err)
	}
	if g := n.server.Metrics().Garbage; g == 0 {
		t.Error("no garbage was counted")
	}
	eventually(t, "no writer is left", func() bool { return m.Writers() == 0 })
}

func TestABitFlippedOnTheWayOutIsNeverBelieved(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{plain: true})
	p := newProxy(t, func() string { return n.addr })
	c := through(t, n, p, tcp.Config{})
	ep := c.Endpoint(2)
	s := spec(1, 64<<10)
	data, err := write(within(t, 10*time.Second), ep, s, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 1, 5, 9, 13, 17, 21, 24, 27, 28, 5000, 65000, 24 + 4 + 64<<10 - 1} {
		p.down.Store(at)
		got, err := read(within(t, 10*time.Second), ep, s)
		p.down.Store(-1)
		// A flip may hit the beginning of a fresh connection: then the read was made again over another one.
		if err == nil && !bytes.Equal(got, data) {
			t.Errorf("byte %d flipped: the read passed the check", at)
		}
	}
	if got, err := read(within(t, 10*time.Second), ep, s); err != nil || !bytes.Equal(got, data) {
		t.Errorf("an undisturbed read: %v", err)
	}
}

func TestAServerThatCameBackIsUsedWithoutAnErrorForReads(t *testing.T) {
	for _, plain := range []bool{false, true} {
		m := shardtest.NewMem(3)
		n := start(t, m, options{plain: plain})
		s := spec(1, 64<<10)
		if _, err := write(within(t, 10*time.Second), n.ep, s, 64<<10); err != nil {
			t.Fatal(err)
		}
		n.restart(t, m)
		n.rpc.CloseIdle()
		if _, err := read(within(t, 10*time.Second), n.ep, s); err != nil {
			t.Errorf("plain=%v: read over a connection that a restart had cut: %v", plain, err)
		}
		if _, err := write(within(t, 10*time.Second), n.ep, spec(2, 64<<10), 64<<10); err != nil {
			t.Errorf("plain=%v: write after the restart: %v", plain, err)
		}
	}
}

func TestConnectionsToANodeAreBoundedAndWaitingForOneEndsWithTheContext(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{client: tcp.Config{MaxConns: 2}})
	s := spec(1, 64<<10)
	if _, err := write(within(t, 10*time.Second), n.ep, s, 64<<10); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	var waiting atomic.Int32
	m.SetFault(func(ctx context.Context, _ shardtest.Call) error {
		waiting.Add(1)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := read(within(t, 20*time.Second), n.ep, s)
			results <- err
		}()
	}
	eventually(t, "two reads under way", func() bool { return waiting.Load() == 2 })
	_, err := read(within(t, 30*time.Millisecond), n.ep, s)
	if !oerr.Is(err, oerr.DeadlineExceeded) {
		t.Errorf("third read: %v, expected its deadline's end", err)
	}
	if got := n.client.Metrics().Conns; got != 2 {
		t.Errorf("%d connections are open, expected 2", got)
	}
	close(release)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("read that had a connection: %v", err)
		}
	}
}

func TestAClientThatGoesAwayStopsTheStore(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{})
	s := spec(1, 64<<10)
	if _, err := write(within(t, 10*time.Second), n.ep, s, 64<<10); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	m.SetFault(func(ctx context.Context, _ shardtest.Call) error {
		<-ctx.Done()
		stopped <- ctx.Err()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(context.Background()) // no deadline: the server gets a long one
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := read(ctx, n.ep, s); !oerr.Is(err, oerr.Canceled) {
		t.Errorf("cancelled read: %v", err)
	}
	select {
	case err := <-stopped:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the store's context ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the store still works for a client that is gone")
	}
}

func TestTheServersMemoryIsBoundedByItsPool(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{pool: 2 << 20})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s := spec(byte(i+1), 3<<20)
			if _, err := write(within(t, 30*time.Second), n.ep, s, 1<<20); err != nil {
				t.Errorf("write %d: %v", i, err)
			} else if _, err := read(within(t, 30*time.Second), n.ep, s); err != nil {
				t.Errorf("read %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func TestAHungPeerCannotHoldBuffers(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{plain: true, server: tcp.ServerConfig{FrameLimit: 50 * time.Millisecond}})
	c := ticketed(t, n)
	defer c.Close()
	c.Write(createFrame)
	c.Write(dataFrame[:100]) // and then nothing
	eventually(t, "the buffer was taken", func() bool { return n.pool.InUse() > 0 || n.server.Metrics().Broken > 0 })
	eventually(t, "the buffer is back", func() bool { return n.pool.InUse() == 0 && m.Writers() == 0 && n.server.Metrics().Broken == 1 })
	d := ticketed(t, n)
	defer d.Close()
	d.Write(createFrame)
	d.Write(dataFrame) // all of it, and no commit
	eventually(t, "the buffer of a shard that is never committed is back", func() bool {
		return n.pool.InUse() == 0 && m.Writers() == 0 && n.server.Metrics().Broken == 2
	})
}

// createFrame and dataFrame are recorded from a client: see capture.
var createFrame, dataFrame = capture()

// capture returns the frames of a 64 KiB write as a real client sends them.
func capture() (create, data []byte) {
	all := tcp.EncodeWrite(spec(9, 64<<10), bytes.Repeat([]byte{1}, 64<<10))
	return all[0], append(append([]byte(nil), all[1]...), all[2]...)
}

// ticketed returns a raw plaintext connection that the server has accepted.
func ticketed(t *testing.T, n *node) net.Conn {
	t.Helper()
	b, err := n.rpc.Call(within(t, 10*time.Second), 2, wire.MethodShardTicket, []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(append([]byte(tcp.PlainMagic), b[:32]...))
	proof := make([]byte, 32)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, proof); err != nil || !bytes.Equal(proof, b[32:]) {
		t.Fatalf("proof % x, expected % x (error %v)", proof, b[32:], err)
	}
	return c
}

func TestATicketIsGoodOnceAndGarbageClosesTheConnection(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{plain: true})
	refused := func(what string, first []byte) {
		t.Helper()
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write(first)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if b, err := io.ReadAll(c); len(b) != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: read %d bytes, %v", what, len(b), err)
		}
	}
	b, err := n.rpc.Call(within(t, 10*time.Second), 2, wire.MethodShardTicket, []byte{2})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hello := append([]byte(tcp.PlainMagic), b[:32]...)
	c.Write(hello)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	refused("a ticket used twice", hello)
	refused("a ticket nobody gave out", append([]byte(tcp.PlainMagic), bytes.Repeat([]byte{7}, 32)...))
	refused("the second half of a ticket", append([]byte(tcp.PlainMagic), b[32:64]...))
	eventually(t, "bad tickets counted", func() bool { return n.server.Metrics().BadTickets == 3 })
	c.Write(bytes.Repeat([]byte("garbage!"), 100))
	if rest, err := io.ReadAll(c); len(rest) != 0 {
		t.Errorf("garbage got %d bytes of answer, %v", len(rest), err)
	}
	eventually(t, "garbage counted", func() bool { return n.server.Metrics().Garbage == 1 })
	for _, req := range [][]byte{nil, {0}, {17}, {1, 1}} {
		if _, err := n.rpc.Call(within(t, 10*time.Second), 2, wire.MethodShardTicket, req); !oerr.Is(err, oerr.InvalidArgument) {
			t.Errorf("ticket request % x: %v", req, err)
		}
	}
}

func TestIdleConnectionsAreReaped(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{client: tcp.Config{IdleTimeout: 20 * time.Millisecond}})
	if _, err := write(within(t, 10*time.Second), n.ep, spec(1, 64<<10), 64<<10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no connection is open", func() bool { return n.client.Metrics().Conns == 0 && n.server.Metrics().Conns == 0 })
	if _, err := read(within(t, 10*time.Second), n.ep, spec(1, 64<<10)); err != nil {
		t.Errorf("read after the connections were reaped: %v", err)
	}
}

func TestACutConnectionIsUnavailableInTheMiddleOfAStream(t *testing.T) {
	m := shardtest.NewMem(3)
	n := start(t, m, options{plain: true})
	p := newProxy(t, func() string { return n.addr })
	ep := through(t, n, p, tcp.Config{}).Endpoint(2)
	ctx := within(t, 20*time.Second)
	s := spec(1, 4<<20)
	data := make([]byte, s.Length)
	crcs := shard.AppendCRCs(nil, s.Blob, s.Index, 0, data)
	w, err := ep.Create(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, nil, data[:1<<20], crcs[:16]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the writer is open", func() bool { return m.Writers() == 1 })
	p.cut()
	for i := 1; i < 4 && err == nil; i++ {
		err = w.Append(ctx, nil, data[i<<20:(i+1)<<20], crcs[i*16:(i+1)*16])
	}
	if err == nil {
		_, err = w.Commit(ctx)
	}
	if !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("a cut stream ended with %v", err)
	}
	w.Abort(nil)
	eventually(t, "the far side dropped the shard", func() bool { return m.Writers() == 0 && m.Shards() == 0 })
}

// unchecked is a store that looks at nothing: what reaches it is what the server let through.
type unchecked struct {
	sink
	appends, commits atomic.Int32
}

func (u *unchecked) Create(context.Context, shard.Spec) (shard.Writer, error) { return u, nil }
func (u *unchecked) Append(context.Context, *shard.Buf, []byte, []uint32) error {
	u.appends.Add(1)
	return nil
}
func (u *unchecked) Commit(context.Context) (shard.Ack, error) {
	u.commits.Add(1)
	return shard.Ack{}, nil
}

func TestTheServerChecksCellsBeforeTheStoreSeesThem(t *testing.T) {
	u := &unchecked{}
	n := start(t, u, options{})
	ctx := within(t, 20*time.Second)
	for _, length := range []uint64{64 << 10, 3 << 20} {
		s := spec(1, length)
		data := make([]byte, length)
		crcs := shard.AppendCRCs(nil, s.Blob, s.Index, 0, data)
		data[7] ^= 1
		w, err := n.ep.Create(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if err = w.Append(ctx, nil, data, crcs); err == nil {
			_, err = w.Commit(ctx)
		}
		w.Abort(nil)
		if !oerr.Is(err, oerr.Corrupt) {
			t.Errorf("%d bytes: %v, expected corrupt", length, err)
		}
	}
	if u.appends.Load() != 0 || u.commits.Load() != 0 {
		t.Errorf("the store saw %d appends and %d commits", u.appends.Load(), u.commits.Load())
	}
}

func TestAServerThatDoesNotKnowTheTicketIsNotBelieved(t *testing.T) {
	n := start(t, shardtest.NewMem(3), options{plain: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { // says yes to everything
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write(append(make([]byte, 32), tcp.EncodeAck(shard.Ack{Drive: 3, Incarnation: 1})...))
			wg.Go(func() { io.Copy(io.Discard, c); c.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	c, err := tcp.NewClient(tcp.Config{Caller: n.rpc, Resolve: func(ident.Node) (string, bool) { return l.Addr().String(), true }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := write(within(t, 10*time.Second), c.Endpoint(2), spec(1, 64<<10), 64<<10); !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("an impostor's acknowledgement: %v", err)
	}
	if c.Metrics().Garbage != 1 {
		t.Errorf("metrics: %+v", c.Metrics())
	}
}

func TestAnotherNodesCertificateIsNotBelieved(t *testing.T) {
	n := start(t, shardtest.NewMem(3), options{})
	cfg := n.pki.Client(1)
	c, err := tcp.NewClient(tcp.Config{TLS: func(ident.Node) *tls.Config { return cfg }, PeerOf: wiretest.PeerOf,
		Resolve: func(ident.Node) (string, bool) { return n.addr, true }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Endpoint(7).Stat(within(t, 10*time.Second), spec(1, 4096).Ref, false); !oerr.Is(err, oerr.Unavailable) {
		t.Errorf("node 2 answering for node 7: %v", err)
	}
	if _, err := c.Endpoint(2).Stat(within(t, 10*time.Second), spec(1, 4096).Ref, false); err != nil {
		t.Errorf("node 2 answering for itself: %v", err)
	}
}
