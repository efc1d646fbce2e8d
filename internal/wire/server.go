package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Defaults of ServerConfig.
const (
	DefaultMaxConcurrent    = 256
	DefaultMaxConns         = 4096
	DefaultMaxPending       = 128
	DefaultMaxInFlight      = 32 << 20 // bytes
	DefaultHandshakeTimeout = 5 * time.Second
	DefaultIdleTimeout      = 10 * time.Minute
	joinTimeout             = 30 * time.Second // a connection without a certificate lives no longer
	userTimeoutMS           = 10_000           // unacknowledged bytes end a connection: a blackholed peer
)

// ServerConfig configures a Server. Zero values take the defaults.
type ServerConfig struct {
	Self ident.Node
	// TLS is the server's configuration; it must ask for client certificates on ALPNRPC and ALPNShard.
	// GetConfigForClient in it is honoured for each connection, so certificates can be replaced while running.
	TLS *tls.Config
	// PeerOf reads who the peer is from its verified certificate; RoleNone when it showed none.
	PeerOf           func(tls.ConnectionState) (Peer, error)
	MaxConcurrent    int           // calls running for each connection
	MaxFrame         int           // bytes of payload
	MaxInFlight      int           // bytes of requests being handled, and of replies queued, for each connection
	MaxConns         int           // open connections
	MaxPending       int           // connections that have not authenticated yet
	HandshakeTimeout time.Duration // from accept to the end of the handshake
	IdleTimeout      time.Duration // an rpc connection on which nothing is read
	// Refused is told, when set, of each connection refused or ended because of what the peer did.
	Refused func(reason string, remote net.Addr, err error)
}

func (c *ServerConfig) fill() {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&c.MaxConcurrent, DefaultMaxConcurrent)
	def(&c.MaxFrame, DefaultMaxFrame)
	def(&c.MaxInFlight, DefaultMaxInFlight)
	def(&c.MaxConns, DefaultMaxConns)
	def(&c.MaxPending, DefaultMaxPending)
	if c.HandshakeTimeout <= 0 {
		c.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
}

// Server answers on the internode port. Register handlers, then Serve; handlers may also be added later.
type Server struct {
	cfg     ServerConfig
	tls     *tls.Config
	methods [maxMethod]atomic.Pointer[method]
	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	pools   reqPools
	mu      struct {
		sync.Mutex
		closed     bool
		listeners  map[net.Listener]struct{}
		conns      map[net.Conn]struct{}
		pending    int
		handlers   map[string]func(context.Context, net.Conn, Peer)
		plainMagic string
		plain      func(context.Context, net.Conn)
	}
	accepted, busy, denied, bytesOut atomic.Uint64
	ended                            counters
}

type method struct {
	min     Role
	handler Handler
	n       methodCounters
}

// NewServer returns a server that listens nowhere yet.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.TLS == nil || cfg.PeerOf == nil {
		return nil, oerr.Errorf("wire.server", oerr.InvalidArgument, "TLS and PeerOf must be set: there is no unauthenticated internode port")
	}
	cfg.fill()
	s := &Server{cfg: cfg, tls: serverTLS(cfg.TLS)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.listeners = map[net.Listener]struct{}{}
	s.mu.conns = map[net.Conn]struct{}{}
	s.mu.handlers = map[string]func(context.Context, net.Conn, Peer){}
	return s, nil
}

// serverTLS turns off the small first records of crypto/tls, which cost CPU on connections that live for hours, and
// fills in the protocols, in base and in what its GetConfigForClient returns.
func serverTLS(base *tls.Config) *tls.Config {
	cfg := base.Clone()
	cfg.DynamicRecordSizingDisabled = true
	cfg.MinVersion = tls.VersionTLS13
	if len(cfg.NextProtos) == 0 {
		cfg.NextProtos = []string{ALPNRPC, ALPNShard, ALPNJoin}
	}
	if get := base.GetConfigForClient; get != nil {
		cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := get(h)
			if c == nil || err != nil {
				return c, err
			}
			c = c.Clone()
			c.DynamicRecordSizingDisabled = true
			c.MinVersion = tls.VersionTLS13
			if len(c.NextProtos) == 0 {
				c.NextProtos = []string{ALPNRPC, ALPNShard, ALPNJoin}
			}
			return c, nil
		}
	}
	return cfg
}

// Handle registers the handler of a method for peers of at least role min.
func (s *Server) Handle(m Method, min Role, h Handler) {
	s.methods[m].Store(&method{min: min, handler: h})
}

// HandleConn takes over TLS connections of members that speak another protocol (ALPNShard). The connection is closed
// when h returns; ctx ends at Close.
func (s *Server) HandleConn(alpn string, h func(ctx context.Context, c net.Conn, p Peer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.handlers[alpn] = h
}

// HandlePlain takes over plaintext connections that begin with magic, which has been read when h is called. h must
// authenticate the peer itself before anything else.
func (s *Server) HandlePlain(magic string, h func(ctx context.Context, c net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.plainMagic, s.mu.plain = magic, h
}

// Serve accepts until Close (then it returns nil) or until the listener fails.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		l.Close()
		return nil
	}
	s.mu.listeners[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			if s.ctx.Err() != nil {
				return nil
			}
			if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED) {
				if !s.pause(50 * time.Millisecond) { // out of descriptors passes; spinning does not help
					return nil
				}
				continue
			}
			return oerr.E("wire.serve", oerr.Unavailable, err)
		}
		s.accept(c)
	}
}

func (s *Server) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// accept admits the connection within the limits and starts its goroutine.
func (s *Server) accept(c net.Conn) {
	s.accepted.Add(1)
	s.mu.Lock()
	reason := ""
	switch {
	case s.mu.closed:
		reason = ReasonShutdown
	case len(s.mu.conns) >= s.cfg.MaxConns:
		reason = ReasonTooMany
	case s.mu.pending >= s.cfg.MaxPending:
		reason = ReasonTooManyNew
	default:
		s.mu.conns[c] = struct{}{}
		s.mu.pending++
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if reason != "" {
		s.refuse(c, reason, nil)
		c.Close()
		return
	}
	go func() {
		defer s.wg.Done()
		defer func() {
			s.mu.Lock()
			delete(s.mu.conns, c)
			s.mu.Unlock()
			c.Close()
		}()
		s.serveConn(c)
	}()
}

// refuse counts and reports the end of a connection.
func (s *Server) refuse(c net.Conn, reason string, err error) {
	if s.ctx.Err() != nil {
		reason = ReasonShutdown
	}
	s.ended.add(reason)
	if s.cfg.Refused != nil && reason != ReasonClosed && reason != ReasonShutdown && reason != ReasonIdle {
		s.cfg.Refused(reason, c.RemoteAddr(), err)
	}
}

// serveConn finds out what the connection is and who is at the other end, and serves it.
func (s *Server) serveConn(c net.Conn) {
	authenticated := sync.OnceFunc(func() {
		s.mu.Lock()
		s.mu.pending--
		s.mu.Unlock()
	})
	defer authenticated()
	tune(c)
	c.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		s.refuse(c, ReasonHandshake, err)
		return
	}
	if first[0] != 0x16 { // not a TLS handshake record
		s.servePlain(c, first[0], authenticated)
		return
	}
	t := tls.Server(&BatchConn{Conn: &firstByte{Conn: c, b: first[:]}}, s.tls)
	if err := t.HandshakeContext(s.ctx); err != nil {
		s.refuse(c, ReasonHandshake, err)
		return
	}
	state := t.ConnectionState()
	alpn := state.NegotiatedProtocol
	peer, err := s.cfg.PeerOf(state)
	if err == nil && alpn == ALPNJoin {
		peer = Peer{} // whoever it is, on this protocol it may join and nothing else
	} else if err == nil && (peer.Role != RoleNode || peer.Node == 0) {
		err = oerr.Errorf("wire.serve", oerr.PermissionDenied, "no member's certificate, and protocol %q needs one", alpn)
	}
	if err != nil {
		s.refuse(c, ReasonIdentity, err)
		return
	}
	c.SetDeadline(time.Time{})
	s.mu.Lock()
	handler := s.mu.handlers[alpn]
	s.mu.Unlock()
	switch {
	case alpn == ALPNRPC:
		authenticated()
		s.refuse(c, s.serveRPC(t, peer), nil)
	case alpn == ALPNJoin: // stays pending: nobody is authenticated
		c.SetDeadline(time.Now().Add(joinTimeout))
		s.refuse(c, s.serveRPC(t, peer), nil)
	case handler != nil:
		authenticated()
		handler(s.ctx, t, peer)
		s.ended.add(ReasonClosed)
	default:
		s.refuse(c, ReasonProtocol, oerr.Errorf("wire.serve", oerr.InvalidArgument, "read protocol %q, expected %s, %s or %s", alpn, ALPNRPC, ALPNShard, ALPNJoin))
	}
	t.Close()
}

func (s *Server) servePlain(c net.Conn, first byte, authenticated func()) {
	s.mu.Lock()
	magic, plain := s.mu.plainMagic, s.mu.plain
	s.mu.Unlock()
	if plain == nil || magic == "" || first != magic[0] {
		reason := ReasonGarbage
		if plain == nil {
			reason = ReasonPlaintext
		}
		s.refuse(c, reason, errGarbage)
		return
	}
	rest := make([]byte, len(magic)-1)
	if _, err := io.ReadFull(c, rest); err != nil || string(rest) != magic[1:] {
		s.refuse(c, ReasonGarbage, errGarbage)
		return
	}
	c.SetDeadline(time.Time{})
	// Counted as pending until the handler has seen a valid ticket.
	plain(context.WithValue(s.ctx, authenticatedKey{}, authenticated), c)
	s.ended.add(ReasonClosed)
}

type authenticatedKey struct{}

// Authenticated is called by a HandlePlain handler when it knows its peer: the connection no longer counts as pending.
func Authenticated(ctx context.Context) {
	if f, ok := ctx.Value(authenticatedKey{}).(func()); ok {
		f()
	}
}

// Close stops listening, closes all connections and waits for the handlers, whose contexts end.
func (s *Server) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.cancel()
	for l := range s.mu.listeners {
		l.Close()
	}
	for c := range s.mu.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// Metrics returns a snapshot.
func (s *Server) Metrics() ServerMetrics {
	m := ServerMetrics{Accepted: s.accepted.Load(), Busy: s.busy.Load(), Denied: s.denied.Load(),
		BytesOut: s.bytesOut.Load(), Ended: s.ended.snapshot(), Methods: map[Method]MethodMetrics{}}
	s.mu.Lock()
	m.Conns, m.Pending = int64(len(s.mu.conns)), int64(s.mu.pending)
	s.mu.Unlock()
	for i := range s.methods {
		if h := s.methods[i].Load(); h != nil {
			m.Methods[Method(i)] = MethodMetrics{Calls: h.n.calls.Load(), Errors: h.n.errors.Load(), Bytes: h.n.bytes.Load()}
		}
	}
	return m
}

// firstByte gives back the byte that was read to tell TLS from plaintext.
type firstByte struct {
	net.Conn
	b []byte
}

func (c *firstByte) Read(p []byte) (int, error) {
	if len(c.b) > 0 && len(p) > 0 {
		n := copy(p, c.b)
		c.b = c.b[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// tune sets what Go does not set by itself: keep-alive probes that find a dead host within 30 s, and a limit on
// unacknowledged data, so that a cut link does not look like a slow peer for 15 minutes (TCP's own patience).
func tune(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3})
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeoutMS)
	})
}
