package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Defaults of ClientConfig.
const (
	DefaultDialTimeout = time.Second     // TCP connect
	DefaultTLSTimeout  = 3 * time.Second // handshake
	DefaultMaxBackoff  = 2 * time.Second
	DefaultMaxQueued   = 16 << 20 // bytes waiting to be written, for each connection
	DefaultMaxCalls    = 4096     // calls in flight, for each connection
	minBackoff         = 50 * time.Millisecond
	stallLimit         = 3 * time.Second // a call that ends by deadline after this, with nothing read, ends the connection
	selfQueue          = 1024            // one-way messages to this node itself
	clientIdle         = 5 * time.Minute // well below the server's, so that the client is the one who closes
)

// ClientConfig configures a Client. Zero values take the defaults.
type ClientConfig struct {
	Self ident.Node
	// Local answers calls to Self, in process. nil: calls to Self are Unavailable.
	Local *Server
	// Resolve gives a node's internode address. It must not block.
	Resolve func(ident.Node) (addr string, ok bool)
	// TLS gives the configuration for a connection to node; the client sets the protocol in a copy.
	TLS func(ident.Node) *tls.Config
	// PeerOf, when set, is asked who answered; anybody else than the node that was meant is Unavailable.
	PeerOf      func(tls.ConnectionState) (Peer, error)
	DialTimeout time.Duration
	TLSTimeout  time.Duration
	MaxBackoff  time.Duration
	MaxFrame    int // bytes of payload
	MaxQueued   int
	MaxCalls    int
}

// Client calls other nodes. It keeps two connections to each: one for calls, one for one-way messages, so that Raft
// never queues behind a list page. Both are dialled when first used.
type Client struct {
	cfg    ClientConfig
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.RWMutex
		closed bool
		peers  map[ident.Node]*peer
		self   chan selfMessage
	}
	calls, errors, sends, dials, bytesIn, bytesOut atomic.Uint64
	conns                                          atomic.Int64
	dialErrors, dropped, ended                     counters
	results                                        sync.Pool // *pending
}

type peer struct{ calls, oneWay *link }

type selfMessage struct {
	m   Method
	msg []byte
}

// NewClient returns a client without connections.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.Resolve == nil || cfg.TLS == nil {
		return nil, oerr.Errorf("wire.client", oerr.InvalidArgument, "Resolve and TLS must be set")
	}
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	defTime := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&cfg.MaxFrame, DefaultMaxFrame)
	def(&cfg.MaxQueued, DefaultMaxQueued)
	def(&cfg.MaxCalls, DefaultMaxCalls)
	defTime(&cfg.DialTimeout, DefaultDialTimeout)
	defTime(&cfg.TLSTimeout, DefaultTLSTimeout)
	defTime(&cfg.MaxBackoff, DefaultMaxBackoff)
	c := &Client{cfg: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.peers = map[ident.Node]*peer{}
	return c, nil
}

var _ Caller = (*Client)(nil)

// Call implements Caller.
func (c *Client) Call(ctx context.Context, node ident.Node, m Method, req []byte) ([]byte, error) {
	c.calls.Add(1)
	reply, err := c.call(ctx, node, m, req)
	if err != nil {
		c.errors.Add(1)
	}
	return reply, err
}

func (c *Client) call(ctx context.Context, node ident.Node, m Method, req []byte) ([]byte, error) {
	const op = "wire.call"
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "call of method %d without a deadline", m)
	}
	if len(req) > c.cfg.MaxFrame {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "method %d: request of %d bytes, at most %d can be sent", m, len(req), c.cfg.MaxFrame)
	}
	if err := ctx.Err(); err != nil {
		return nil, oerr.E(op, oerr.KindOf(err), err)
	}
	if node == c.cfg.Self {
		return c.callSelf(ctx, m, req)
	}
	p, err := c.peer(node)
	if err != nil {
		return nil, err
	}
	return p.calls.call(ctx, deadline, m, req)
}

// callSelf runs the handler on the caller's goroutine: no frame, no copy of the request.
func (c *Client) callSelf(ctx context.Context, m Method, req []byte) ([]byte, error) {
	if c.cfg.Local == nil {
		return nil, oerr.Errorf("wire.call", oerr.Unavailable, "node %d has no server of its own", c.cfg.Self)
	}
	reply, aliases, err := c.cfg.Local.invoke(ctx, Peer{Node: c.cfg.Self, Role: RoleNode}, m, req)
	if aliases {
		reply = append([]byte(nil), reply...)
	}
	return reply, err
}

// Send implements Caller.
func (c *Client) Send(node ident.Node, m Method, msg []byte) bool {
	reason := ReasonQueueFull
	if node == c.cfg.Self {
		if c.sendSelf(m, msg) {
			c.sends.Add(1)
			return true
		}
	} else if len(msg) <= c.cfg.MaxFrame {
		p, err := c.peer(node)
		if err == nil {
			if reason = p.oneWay.send(m, msg); reason == "" {
				c.sends.Add(1)
				return true
			}
		} else {
			reason = ReasonShutdown
		}
	}
	c.dropped.add(reason)
	return false
}

func (c *Client) sendSelf(m Method, msg []byte) bool {
	if c.cfg.Local == nil {
		return false
	}
	c.mu.RLock()
	q := c.mu.self
	c.mu.RUnlock()
	if q == nil {
		c.mu.Lock()
		if c.mu.self == nil && !c.mu.closed {
			c.mu.self = make(chan selfMessage, selfQueue)
			c.wg.Add(1)
			go c.serveSelf(c.mu.self)
		}
		q = c.mu.self
		c.mu.Unlock()
	}
	select {
	case q <- selfMessage{m, msg}: // a nil q (closed client) is never ready
		return true
	default:
		return false
	}
}

// serveSelf runs one-way messages to this node itself, in order, until Close.
func (c *Client) serveSelf(q chan selfMessage) {
	defer c.wg.Done()
	for {
		select {
		case x := <-q:
			c.cfg.Local.invoke(c.ctx, Peer{Node: c.cfg.Self, Role: RoleNode}, x.m, x.msg) // errors are counted there
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Client) peer(node ident.Node) (*peer, error) {
	c.mu.RLock()
	p, closed := c.mu.peers[node], c.mu.closed
	c.mu.RUnlock()
	if p != nil && !closed {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, oerr.Errorf("wire.call", oerr.Closed, "the client was closed")
	}
	if p = c.mu.peers[node]; p == nil {
		p = &peer{calls: newLink(c, node), oneWay: newLink(c, node)}
		c.mu.peers[node] = p
	}
	return p, nil
}

// dial connects to node and authenticates it. The error's kind is Unavailable.
func (c *Client) dial(node ident.Node) (net.Conn, string, error) {
	const op = "wire.dial"
	c.dials.Add(1)
	addr, ok := c.cfg.Resolve(node)
	if !ok {
		return nil, ReasonUnknownNode, oerr.Errorf(op, oerr.Unavailable, "node %d: no address is known", node)
	}
	conn, err := DialTLS(c.ctx, addr, c.cfg.TLS(node), ALPNRPC, c.cfg.DialTimeout, c.cfg.TLSTimeout)
	if err != nil {
		reason := ReasonUnreachable
		if errors.As(err, new(*handshakeError)) {
			reason = ReasonHandshake
		}
		return nil, reason, oerr.Errorf(op, oerr.Unavailable, "node %d: %w", node, err)
	}
	if c.cfg.PeerOf != nil {
		who, err := c.cfg.PeerOf(conn.ConnectionState())
		if err == nil && who.Node != node {
			err = oerr.Errorf(op, oerr.Unavailable, "node %d answers at %s, expected node %d", who.Node, addr, node)
		}
		if err != nil {
			conn.NetConn().Close()
			return nil, ReasonWrongNode, oerr.E(op, oerr.Unavailable, err)
		}
	}
	return conn, "", nil
}

// CloseIdle closes connections on which no call is waiting.
func (c *Client) CloseIdle() {
	for _, l := range c.links() {
		l.closeIdle()
	}
}

// Reset forgets that node could not be reached, so that the next call dials at once: gossip saw it come back.
func (c *Client) Reset(node ident.Node) {
	c.mu.RLock()
	p := c.mu.peers[node]
	c.mu.RUnlock()
	if p != nil {
		p.calls.reset()
		p.oneWay.reset()
	}
}

func (c *Client) links() []*link {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var links []*link
	for _, p := range c.mu.peers {
		links = append(links, p.calls, p.oneWay)
	}
	return links
}

// Close ends all connections; calls in flight end with Unavailable. It waits for the client's goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.cancel()
	for _, l := range c.links() {
		l.close()
	}
	c.wg.Wait()
	return nil
}

// Metrics returns a snapshot.
func (c *Client) Metrics() ClientMetrics {
	return ClientMetrics{
		Calls: c.calls.Load(), Errors: c.errors.Load(), Sends: c.sends.Load(), Dials: c.dials.Load(),
		DialErrors: c.dialErrors.snapshot(), Dropped: c.dropped.snapshot(), Ended: c.ended.snapshot(),
		BytesOut: c.bytesOut.Load(), BytesIn: c.bytesIn.Load(), Conns: c.conns.Load(),
	}
}
