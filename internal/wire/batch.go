package wire

import (
	"net"
	"sync"
)

// batchLimit is how many bytes a batch gathers before it goes out anyway.
const batchLimit = 128 << 10

// BatchConn lies between crypto/tls and the socket. crypto/tls writes each 16 KiB record with a system call of its own;
// between Begin and Flush the records are gathered, so that a megabyte takes 8 calls instead of 64 and a header does
// not travel in a packet of its own. Outside of a batch writes pass straight through (handshakes, alerts).
type BatchConn struct {
	net.Conn
	mu struct {
		sync.Mutex
		on  bool
		buf []byte
	}
}

// Begin starts gathering.
func (c *BatchConn) Begin() {
	c.mu.Lock()
	c.mu.on = true
	c.mu.Unlock()
}

// Write implements net.Conn.
func (c *BatchConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.on {
		return c.Conn.Write(p)
	}
	c.mu.buf = append(c.mu.buf, p...)
	if len(c.mu.buf) < batchLimit {
		return len(p), nil
	}
	if err := c.flushLocked(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what was gathered and ends the batch.
func (c *BatchConn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.on = false
	return c.flushLocked()
}

// flushLocked writes under the lock: the order of TLS records is the order of their numbers, and the only other
// writers are alerts of the same connection.
func (c *BatchConn) flushLocked() error {
	if len(c.mu.buf) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.mu.buf)
	c.mu.buf = c.mu.buf[:0]
	if cap(c.mu.buf) > 2*batchLimit {
		c.mu.buf = nil
	}
	return err
}

// TCP returns the socket below, nil when it is not one.
func (c *BatchConn) TCP() *net.TCPConn {
	inner := c.Conn
	if f, ok := inner.(*firstByte); ok {
		inner = f.Conn
	}
	t, _ := inner.(*net.TCPConn)
	return t
}
