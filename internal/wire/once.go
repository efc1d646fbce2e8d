package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"objstore/internal/oerr"
)

// handshakeError tells a peer that refused us from one that is not there.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// DialTLS connects to addr and shakes hands for one protocol. The connection lies on a BatchConn, so that bulk writers
// can gather records. Shard connections are made with it, too.
func DialTLS(ctx context.Context, addr string, cfg *tls.Config, alpn string, connect, handshake time.Duration) (*tls.Conn, error) {
	d := net.Dialer{Timeout: connect}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	tune(raw)
	if cfg == nil {
		raw.Close()
		return nil, &handshakeError{fmt.Errorf("no configuration for %s", addr)}
	}
	cfg = cfg.Clone()
	cfg.NextProtos = []string{alpn}
	cfg.DynamicRecordSizingDisabled = true
	cfg.MinVersion = tls.VersionTLS13
	conn := tls.Client(&BatchConn{Conn: raw}, cfg)
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &handshakeError{err}
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != alpn {
		raw.Close()
		return nil, &handshakeError{fmt.Errorf("negotiated protocol %q, expected %q", got, alpn)}
	}
	return conn, nil
}

// DialTCP connects in plaintext, tuned like every other connection between nodes.
func DialTCP(ctx context.Context, addr string, connect time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: connect}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	tune(c)
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("dial %s: read a %T, expected TCP", addr, c)
	}
	return t, nil
}

// CallOnce makes one call on a connection of its own: a node that joins has no Client yet (ALPNJoin). ctx must have a
// deadline.
func CallOnce(ctx context.Context, addr string, cfg *tls.Config, alpn string, m Method, req []byte) ([]byte, error) {
	const op = "wire.callonce"
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil, oerr.Errorf(op, oerr.InvalidArgument, "call of method %d without a deadline", m)
	}
	conn, err := DialTLS(ctx, addr, cfg, alpn, time.Until(deadline), time.Until(deadline))
	if err != nil {
		return nil, oerr.E(op, oerr.Unavailable, err)
	}
	defer conn.NetConn().Close()
	stop := context.AfterFunc(ctx, func() { conn.NetConn().Close() })
	defer stop()
	ms := max(1, time.Until(deadline)/time.Millisecond)
	h := header{length: uint32(len(req)), kind: kindRequest, method: m, id: 1, deadline: uint32(min(ms, maxDeadline/time.Millisecond))}
	frame := append([]byte(preamble), make([]byte, headerSize)...)
	h.put(frame[len(preamble):])
	reply, err := exchange(conn, append(frame, req...))
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return nil, oerr.E(op, oerr.KindOf(ctx.Err()), ctx.Err())
	}
	return nil, err
}

// exchange writes one request and reads its answer.
func exchange(conn net.Conn, frame []byte) ([]byte, error) {
	const op = "wire.callonce"
	if _, err := conn.Write(frame); err != nil {
		return nil, oerr.E(op, oerr.Unavailable, err)
	}
	br := bufio.NewReader(conn)
	h, err := readHeader(br, DefaultMaxFrame)
	if err != nil {
		return nil, oerr.E(op, oerr.Unavailable, err)
	}
	if (h.kind != kindReply && h.kind != kindError) || h.id != 1 {
		return nil, oerr.Errorf(op, oerr.Unavailable, "read frame kind %d for request %d, expected the answer to request 1", h.kind, h.id)
	}
	body := make([]byte, h.length)
	if _, err := io.ReadFull(br, body); err != nil {
		return nil, oerr.E(op, oerr.Unavailable, err)
	}
	if h.kind == kindError {
		return nil, ParseError(op, body)
	}
	return body, nil
}
