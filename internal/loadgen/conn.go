package loadgen

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	dialTimeout   = 5 * time.Second
	readBuffer    = 64 << 10 // bytes
	maxHeaderLine = readBuffer
	maxHeaders    = 128
)

// target is where a connection goes.
type target struct {
	addr string // host:port
	host string // Host header
	tls  bool
}

func parseTarget(endpoint string) (target, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return target{}, err
	}
	t := target{addr: u.Host, host: u.Host, tls: u.Scheme == "https"}
	if u.Port() == "" {
		port := "80"
		if t.tls {
			port = "443"
		}
		t.addr = net.JoinHostPort(u.Hostname(), port)
	}
	return t, nil
}

// conn is one keep-alive connection. It is opened by the first request and again after an error. Not for concurrent
// use.
type conn struct {
	to  target
	nc  net.Conn
	br  *bufio.Reader
	vec net.Buffers
}

// answer is the head of a response.
type answer struct {
	status  int
	length  int64 // of the body; -1 when chunked or until close
	chunked bool
	close   bool
}

func (c *conn) open(ctx context.Context) error {
	if c.nc != nil {
		return nil
	}
	d := net.Dialer{Timeout: dialTimeout}
	var nc net.Conn
	var err error
	if c.to.tls {
		host, _, _ := net.SplitHostPort(c.to.addr)
		td := tls.Dialer{NetDialer: &d, Config: &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}}
		nc, err = td.DialContext(ctx, "tcp", c.to.addr)
	} else {
		nc, err = d.DialContext(ctx, "tcp", c.to.addr)
	}
	if err != nil {
		return err
	}
	c.nc = nc
	if c.br == nil {
		c.br = bufio.NewReaderSize(nc, readBuffer)
	} else {
		c.br.Reset(nc)
	}
	return nil
}

func (c *conn) shut() {
	if c.nc != nil {
		c.nc.Close()
		c.nc = nil
	}
}

// do sends head and body and hands the response's body to sink, which must read it whole; sink may be nil when the
// body does not matter. After an error the connection is closed.
func (c *conn) do(ctx context.Context, head, body []byte, noBody bool, sink func(answer, io.Reader) error) (answer, error) {
	a, err := c.exchange(ctx, head, body, noBody, sink)
	if err != nil || a.close {
		c.shut()
	}
	return a, err
}

func (c *conn) exchange(ctx context.Context, head, body []byte, noBody bool, sink func(answer, io.Reader) error) (answer, error) {
	if err := c.open(ctx); err != nil {
		return answer{}, err
	}
	c.nc.SetDeadline(time.Now().Add(opTimeout))
	if len(body) > 0 {
		c.vec = append(c.vec[:0], head, body)
		v := c.vec
		if _, err := v.WriteTo(c.nc); err != nil {
			return answer{}, err
		}
	} else if _, err := c.nc.Write(head); err != nil {
		return answer{}, err
	}
	a, err := c.readHead()
	for err == nil && a.status >= 100 && a.status < 200 {
		a, err = c.readHead()
	}
	if err != nil {
		return a, err
	}
	if noBody || a.status == 204 || a.status == 304 {
		a.length, a.chunked = 0, false
	}
	r := c.bodyReader(&a)
	if sink != nil {
		if err := sink(a, r); err != nil {
			return a, err
		}
	}
	_, err = io.Copy(io.Discard, r)
	if lr, ok := r.(*io.LimitedReader); ok && err == nil && lr.N > 0 && a.length >= 0 {
		err = fmt.Errorf("body: read %d bytes, expected %d: %w", a.length-lr.N, a.length, io.ErrUnexpectedEOF)
	}
	return a, err
}

func (c *conn) bodyReader(a *answer) io.Reader {
	switch {
	case a.chunked:
		return &chunkedReader{br: c.br}
	case a.length >= 0:
		return &io.LimitedReader{R: c.br, N: a.length}
	}
	a.close = true
	return c.br
}

func (c *conn) readHead() (answer, error) {
	a := answer{length: -1}
	line, err := c.line()
	if err != nil {
		return a, err
	}
	if len(line) < 12 || !strings.HasPrefix(line, "HTTP/1.") {
		return a, fmt.Errorf("status line: read %q, expected HTTP/1.1", line)
	}
	a.close = line[7] == '0'
	if a.status, err = strconv.Atoi(line[9:12]); err != nil {
		return a, fmt.Errorf("status line: read %q", line)
	}
	for range maxHeaders {
		if line, err = c.line(); err != nil {
			return a, err
		}
		if line == "" {
			return a, nil
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.EqualFold(name, "Content-Length"):
			if a.length, err = strconv.ParseInt(value, 10, 63); err != nil || a.length < 0 {
				return a, fmt.Errorf("content-length: read %q", value)
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			a.chunked = strings.EqualFold(value, "chunked")
		case strings.EqualFold(name, "Connection"):
			a.close = a.close || strings.EqualFold(value, "close")
		}
	}
	return a, fmt.Errorf("response: more than %d header lines", maxHeaders)
}

func (c *conn) line() (string, error) { return readLine(c.br) }

// readLine returns one line without its end.
func readLine(br *bufio.Reader) (string, error) {
	b, err := br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", fmt.Errorf("response: a line of more than %d bytes", maxHeaderLine)
	}
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return "", err
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// chunkedReader decodes Transfer-Encoding: chunked, trailers included.
type chunkedReader struct {
	br   *bufio.Reader
	left int64
	done bool
}

func (r *chunkedReader) Read(p []byte) (int, error) {
	if r.done {
		return 0, io.EOF
	}
	if r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
		if r.done {
			return 0, io.EOF
		}
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.br.Read(p)
	r.left -= int64(n)
	if r.left == 0 && err == nil {
		_, err = readLine(r.br) // the CRLF behind a chunk
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (r *chunkedReader) next() error {
	line, err := readLine(r.br)
	if err != nil {
		return err
	}
	size, _, _ := strings.Cut(line, ";")
	if r.left, err = strconv.ParseInt(strings.TrimSpace(size), 16, 63); err != nil || r.left < 0 {
		return fmt.Errorf("chunk size: read %q", line)
	}
	for i := 0; r.left == 0; i++ {
		if line, err = readLine(r.br); err != nil {
			return err
		}
		if line == "" {
			r.done = true
			return nil
		}
		if i > maxHeaders {
			return fmt.Errorf("response: more than %d trailer lines", maxHeaders)
		}
	}
	return nil
}
