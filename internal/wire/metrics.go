package wire

import (
	"sync"
	"sync/atomic"
)

// Reasons for which a connection is refused or closed by this side. They are metric labels.
const (
	ReasonGarbage     = "garbage"        // neither TLS nor a known magic, or not a frame
	ReasonHandshake   = "handshake"      // the TLS handshake failed or took too long
	ReasonIdentity    = "identity"       // the certificate names no member of this cluster
	ReasonProtocol    = "protocol"       // no or unknown ALPN protocol
	ReasonPlaintext   = "plaintext"      // plaintext shard connection, and this node does not take them
	ReasonTooMany     = "too_many"       // MaxConns
	ReasonTooManyNew  = "too_many_new"   // MaxPending
	ReasonClosed      = "closed"         // ended by the peer, or broken
	ReasonIdle        = "idle"           // nothing read for IdleTimeout
	ReasonSlow        = "slow"           // the peer does not read: writes timed out
	ReasonShutdown    = "shutdown"       // Close
	ReasonUnreachable = "unreachable"    // dial failed
	ReasonBackoff     = "backoff"        // dial failed lately
	ReasonUnknownNode = "unknown_node"   // no address
	ReasonQueueFull   = "queue_full"     // bounded queue
	ReasonStalled     = "stalled"        // calls time out and nothing comes back
	ReasonWrongNode   = "wrong_identity" // another node answers at the address
)

// maxMethod bounds the method table.
const maxMethod = 64

// MethodMetrics counts one method.
type MethodMetrics struct {
	Calls, Errors, Bytes uint64 // Bytes: request payloads
}

// ServerMetrics is a snapshot of a server's counters.
type ServerMetrics struct {
	Conns    int64             // open, handshakes included
	Pending  int64             // handshakes
	Accepted uint64            // connections
	Ended    map[string]uint64 // connections by reason
	Busy     uint64            // calls answered Busy
	Denied   uint64            // calls answered PermissionDenied
	Methods  map[Method]MethodMetrics
	BytesOut uint64 // reply payloads and headers
}

// ClientMetrics is a snapshot of a client's counters.
type ClientMetrics struct {
	Calls, Errors, Sends uint64
	Dials                uint64
	DialErrors           map[string]uint64 // by reason
	Dropped              map[string]uint64 // one-way messages by reason
	Ended                map[string]uint64 // connections by reason
	BytesOut, BytesIn    uint64
	Conns                int64
}

// counters counts by reason; the set of reasons is the fixed one above.
type counters struct {
	mu sync.Mutex
	n  map[string]uint64
}

func (c *counters) add(reason string) {
	c.mu.Lock()
	if c.n == nil {
		c.n = map[string]uint64{}
	}
	c.n[reason]++
	c.mu.Unlock()
}

func (c *counters) snapshot() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]uint64, len(c.n))
	for k, v := range c.n {
		out[k] = v
	}
	return out
}

type methodCounters struct {
	calls, errors, bytes atomic.Uint64
}
