package tcp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
	"objstore/internal/wire"
)

const readBuffer = 4 << 10 // bytes: headers and meta; cells go straight to where they belong

// link is one connection, either end. One goroutine uses it at a time, but kill may come from anywhere.
type link struct {
	conn  net.Conn
	batch *wire.BatchConn // TLS
	raw   *net.TCPConn    // plaintext: writev
	br    *bufio.Reader
	hdr   [headerSize]byte
	meta  []byte      // of the frame read last
	out   []byte      // headers and meta being written
	iov   net.Buffers // scratch

	proof     []byte // plaintext client: what the server must send before its first answer
	reused    bool
	idleSince time.Time
}

func newLink(c net.Conn) *link {
	l := &link{conn: c, br: bufio.NewReaderSize(c, readBuffer)}
	switch t := c.(type) {
	case *tls.Conn:
		l.batch, _ = t.NetConn().(*wire.BatchConn)
	case *net.TCPConn:
		l.raw = t
	}
	return l
}

// close ends the connection at once; a TLS farewell would wait for a peer that may hang.
func (l *link) close() {
	if t, ok := l.conn.(*tls.Conn); ok {
		t.NetConn().Close()
		return
	}
	l.conn.Close()
}

// kill makes whatever is being read or written fail. It can be called while another goroutine uses the link.
func (l *link) kill() { l.conn.SetDeadline(time.Unix(1, 0)) }

// write sends all of bufs, in one system call where the kernel takes it. bufs is l.iov or a part of it.
func (l *link) write(bufs net.Buffers) error {
	if l.raw != nil {
		_, err := bufs.WriteTo(l.raw)
		return err
	}
	if l.batch != nil {
		l.batch.Begin()
	}
	err := writeEach(l.conn, bufs)
	if l.batch != nil {
		if ferr := l.batch.Flush(); err == nil {
			err = ferr
		}
	}
	return err
}

func writeEach(c net.Conn, bufs net.Buffers) error {
	for _, b := range bufs {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// open begins a frame in l.out; the caller appends the meta to l.out, then calls send.
func (l *link) open() { l.out = openFrame(l.out[:0]) }

// send writes the frame that open began, with data behind it.
func (l *link) send(kind byte, deadlineMS uint32, data []byte) error {
	sealFrame(l.out, 0, kind, deadlineMS, len(data))
	if len(data) == 0 {
		_, err := l.conn.Write(l.out)
		return err
	}
	l.iov = append(l.iov[:0], l.out, data)
	return l.write(l.iov)
}

// next reads a header and its meta, which stays valid until the following next. Data is left to be read.
func (l *link) next() (header, error) {
	if l.proof != nil {
		if err := l.checkProof(); err != nil {
			return header{}, err
		}
	}
	if _, err := io.ReadFull(l.br, l.hdr[:]); err != nil {
		return header{}, err
	}
	h, err := parseHeader(l.hdr[:])
	if err != nil {
		return h, err
	}
	if cap(l.meta) < int(h.meta) {
		l.meta = make([]byte, max(int(h.meta), 512))
	}
	l.meta = l.meta[:h.meta]
	if _, err := io.ReadFull(l.br, l.meta); err != nil {
		return h, unexpected(err)
	}
	return h, checkMeta(l.hdr[:], l.meta, h.crc)
}

// cells reads a frame's data into dst.
func (l *link) cells(dst []byte) error {
	if _, err := io.ReadFull(l.br, dst); err != nil {
		return unexpected(err)
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// begin applies ctx to the connection for one exchange: its deadline (limit from now when it has none) and its
// cancellation. The returned function ends that and reports whether ctx had not ended.
func (l *link) begin(ctx context.Context, limit time.Duration) (stop func() bool) {
	d, ok := ctx.Deadline()
	if !ok {
		d = time.Now().Add(limit)
	}
	l.conn.SetDeadline(d)
	if ctx.Done() == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, l.kill)
}

// remaining returns what is left of ctx in the form that headers carry; limit when ctx has no deadline.
func remaining(ctx context.Context, limit time.Duration) uint32 {
	left := limit
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	return uint32(max(1, min((left+time.Millisecond-1)/time.Millisecond, maxDeadline/time.Millisecond)))
}

// maxDeadline bounds one operation: verifying a shard of a 5 TiB object takes hours, and is not done in one call.
const maxDeadline = 24 * time.Hour

// connError turns a failure of the connection into the caller's error.
func connError(ctx context.Context, op, who string, err error) error {
	if cerr := ended(ctx); cerr != nil {
		return oerr.Errorf(op, oerr.KindOf(cerr), "%s: %w", who, cerr)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return oerr.Errorf(op, oerr.DeadlineExceeded, "%s: %w", who, err)
	}
	return oerr.Errorf(op, oerr.Unavailable, "%s: %w", who, err)
}

// alive looks, without waiting, whether an idle connection still stands: anything to read, the end included, means no.
func (l *link) alive() bool {
	if l.br.Buffered() > 0 {
		return false
	}
	raw := l.tcp()
	if raw == nil {
		return true // cannot look: the operation will find out
	}
	sc, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	err = sc.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ok = err == unix.EAGAIN
		return true
	})
	return err == nil && ok
}

// tcp returns the socket, nil when there is none.
func (l *link) tcp() *net.TCPConn {
	if l.raw == nil && l.batch != nil {
		return l.batch.TCP()
	}
	return l.raw
}

// ended is ctx.Err, and also the deadline's end when I/O that got the same deadline noticed it a moment earlier.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
