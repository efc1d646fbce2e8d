package tcp

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/internal/wire"
	"objstore/shard"
)

// Defaults of Config.
const (
	DefaultMaxConns    = 64
	DefaultDialTimeout = time.Second
	DefaultTLSTimeout  = 3 * time.Second
	DefaultIdleTimeout = time.Minute
	DefaultMaxBackoff  = 2 * time.Second
	DefaultOpTimeout   = time.Minute // of an operation whose context has no deadline
	minBackoff         = 50 * time.Millisecond
	probeAfter         = 100 * time.Millisecond // an idle connection is looked at before it is used again
)

// Config configures a Client. Zero values take the defaults.
type Config struct {
	// Resolve gives a node's internode address. It must not block.
	Resolve func(ident.Node) (addr string, ok bool)
	// TLS gives the configuration for connections to a node. nil means plaintext with tickets, which Caller fetches.
	TLS func(ident.Node) *tls.Config
	// PeerOf, when set, is asked who answered on a TLS connection; anybody else than the node meant is Unavailable.
	PeerOf      func(tls.ConnectionState) (wire.Peer, error)
	Caller      wire.Caller
	MaxConns    int // to each node; operations beyond wait within their context
	DialTimeout time.Duration
	TLSTimeout  time.Duration
	IdleTimeout time.Duration
	MaxBackoff  time.Duration
	OpTimeout   time.Duration
}

// Metrics is a snapshot of a client's or server's counters.
type Metrics struct {
	Reads, Writes, Stats, Deletes, Lists uint64 // operations begun
	Errors                               map[oerr.Kind]uint64
	BytesRead, BytesWritten              uint64 // cells
	Conns                                int64  // open
	Dials, DialErrors                    uint64 // client
	Retries                              uint64 // client: repeated on a fresh connection
	Broken                               uint64 // connections given up in the middle of an operation
	Garbage                              uint64 // connections closed because of what was read
	BadTickets                           uint64 // server
}

type counters struct {
	reads, writes, stats, deletes, lists atomic.Uint64
	bytesRead, bytesWritten              atomic.Uint64
	conns                                atomic.Int64
	dials, dialErrors, retries           atomic.Uint64
	broken, garbage, badTickets          atomic.Uint64
	errors                               [64]atomic.Uint64 // by kind
}

func (c *counters) count(err error) {
	if err != nil {
		c.errors[min(int(oerr.KindOf(err)), len(c.errors)-1)].Add(1)
	}
}

func (c *counters) snapshot() Metrics {
	m := Metrics{Reads: c.reads.Load(), Writes: c.writes.Load(), Stats: c.stats.Load(), Deletes: c.deletes.Load(), Lists: c.lists.Load(),
		BytesRead: c.bytesRead.Load(), BytesWritten: c.bytesWritten.Load(), Conns: c.conns.Load(), Dials: c.dials.Load(),
		DialErrors: c.dialErrors.Load(), Retries: c.retries.Load(), Broken: c.broken.Load(), Garbage: c.garbage.Load(),
		BadTickets: c.badTickets.Load(), Errors: map[oerr.Kind]uint64{}}
	for k := range c.errors {
		if n := c.errors[k].Load(); n > 0 {
			m.Errors[oerr.Kind(k)] = n
		}
	}
	return m
}

// Client reaches the shards of other nodes.
type Client struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines that read the answers of large writes
	n      counters
	mu     struct {
		sync.Mutex
		closed bool
		peers  map[ident.Node]*peer
	}
}

// NewClient returns a client without connections.
func NewClient(cfg Config) (*Client, error) {
	switch {
	case cfg.Resolve == nil:
		return nil, oerr.Errorf("shard.tcp.client", oerr.InvalidArgument, "Resolve must be set")
	case cfg.TLS == nil && cfg.Caller == nil:
		return nil, oerr.Errorf("shard.tcp.client", oerr.InvalidArgument, "plaintext needs Caller, to fetch tickets with")
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	def := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&cfg.DialTimeout, DefaultDialTimeout)
	def(&cfg.TLSTimeout, DefaultTLSTimeout)
	def(&cfg.IdleTimeout, DefaultIdleTimeout)
	def(&cfg.MaxBackoff, DefaultMaxBackoff)
	def(&cfg.OpTimeout, DefaultOpTimeout)
	c := &Client{cfg: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.peers = map[ident.Node]*peer{}
	return c, nil
}

// Endpoint returns the shards of node. It does not connect; the same endpoint is returned each time.
func (c *Client) Endpoint(node ident.Node) shard.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.mu.peers[node]
	if p == nil {
		p = newPeer(c, node)
		c.mu.peers[node] = p
	}
	return p
}

// Metrics returns a snapshot.
func (c *Client) Metrics() Metrics { return c.n.snapshot() }

// Reset forgets that node could not be reached, so that the next operation dials at once.
func (c *Client) Reset(node ident.Node) {
	c.mu.Lock()
	p := c.mu.peers[node]
	c.mu.Unlock()
	if p != nil {
		p.mu.Lock()
		p.mu.fails, p.mu.notUntil = 0, time.Time{}
		p.mu.Unlock()
	}
}

// Close closes all connections: operations in progress fail with Unavailable. It waits for the client's goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	peers := c.mu.peers
	c.mu.Unlock()
	c.cancel()
	for _, p := range peers {
		p.close()
	}
	c.wg.Wait()
	return nil
}

func (c *Client) dial(ctx context.Context, p *peer) (*link, error) {
	c.n.dials.Add(1)
	l, err := c.connect(ctx, p)
	if err != nil {
		c.n.dialErrors.Add(1)
	}
	return l, err
}

// connect makes a connection to node and authenticates both sides (plaintext: the server, with its first answer).
func (c *Client) connect(ctx context.Context, p *peer) (*link, error) {
	addr, ok := c.cfg.Resolve(p.node)
	if !ok {
		return nil, oerr.Errorf("shard.tcp.dial", oerr.Unavailable, "node %d: no address is known", p.node)
	}
	if c.cfg.TLS == nil {
		t, err := p.wallet.ticket(ctx, c.cfg.Caller, p.node, time.Now())
		if err != nil {
			return nil, err
		}
		conn, err := wire.DialTCP(ctx, addr, c.cfg.DialTimeout)
		if err != nil {
			return nil, err
		}
		// One write: the server knows who is there before the first operation arrives, and no round trip is spent.
		if _, err := conn.Write(append([]byte(PlainMagic), t[:ticketHalf]...)); err != nil {
			conn.Close()
			return nil, err
		}
		l := newLink(conn)
		l.proof = t[ticketHalf:]
		return l, nil
	}
	conn, err := wire.DialTLS(ctx, addr, c.cfg.TLS(p.node), wire.ALPNShard, c.cfg.DialTimeout, c.cfg.TLSTimeout)
	if err != nil {
		return nil, err
	}
	if c.cfg.PeerOf != nil {
		who, err := c.cfg.PeerOf(conn.ConnectionState())
		if err == nil && who.Node != p.node {
			err = oerr.Errorf("shard.tcp.dial", oerr.Unavailable, "node %d answers at %s, expected node %d", who.Node, addr, p.node)
		}
		if err != nil {
			conn.NetConn().Close()
			return nil, err
		}
	}
	return newLink(conn), nil
}
