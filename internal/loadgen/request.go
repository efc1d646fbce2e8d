package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"objstore/internal/sigv4"
)

// client issues signed requests over one connection.
type client struct {
	conn
	signer *sigv4.Signer
	head   []byte
	buf    []byte // response bodies are read through it
}

const bodyBuffer = 256 << 10 // bytes

func newClient(to target, signer *sigv4.Signer) *client {
	return &client{conn: conn{to: to}, signer: signer, buf: make([]byte, bodyBuffer)}
}

// call is one request. path and query are escaped already.
type call struct {
	method, path, query, hash string
	body                      []byte
	sink                      func(answer, io.Reader) error // for a 2xx answer
}

// send issues the call; an answer other than 2xx is a *statusError.
func (c *client) send(ctx context.Context, q call) error {
	date, auth := c.signer.Sign(time.Now(), sigv4.Request{Method: q.method, Host: c.to.host, Path: q.path, Query: q.query, Hash: q.hash})
	h := append(c.head[:0], q.method...)
	h = append(append(h, ' '), q.path...)
	if q.query != "" {
		h = append(append(h, '?'), q.query...)
	}
	h = append(append(h, " HTTP/1.1\r\nHost: "...), c.to.host...)
	h = append(append(h, "\r\nX-Amz-Content-Sha256: "...), q.hash...)
	h = append(append(h, "\r\nX-Amz-Date: "...), date...)
	h = append(append(h, "\r\nAuthorization: "...), auth...)
	if q.body != nil || q.method == "PUT" || q.method == "POST" {
		h = strconv.AppendInt(append(h, "\r\nContent-Length: "...), int64(len(q.body)), 10)
	}
	c.head = append(h, "\r\n\r\n"...)
	var failed *statusError
	_, err := c.do(ctx, c.head, q.body, q.method == "HEAD", func(a answer, r io.Reader) error {
		if a.status/100 != 2 {
			text, _ := io.ReadAll(io.LimitReader(r, maxErrorBody))
			failed = &statusError{method: q.method, path: q.path, status: a.status, text: errorText(text)}
			return nil
		}
		if q.sink != nil {
			return q.sink(a, r)
		}
		return c.drain(r)
	})
	if err == nil && failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("%s %s at %s: %w", q.method, q.path, c.to.host, err)
	}
	return nil
}

func (c *client) drain(r io.Reader) error {
	for {
		if _, err := r.Read(c.buf); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// statusError is an answer that was not 2xx.
type statusError struct {
	method, path string
	status       int
	text         string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.status, e.text)
}

// errorText picks code and message out of an S3 error document; other text is returned as it is.
func errorText(b []byte) string {
	code, message := element(b, "Code"), element(b, "Message")
	if code == "" {
		return strings.TrimSpace(string(b))
	}
	return code + ": " + message
}

// element returns the text of the first <name> in b. It is no XML parser: it serves flat documents written by servers.
func element(b []byte, name string) string {
	open, shut := "<"+name+">", "</"+name+">"
	i := bytes.Index(b, []byte(open))
	if i < 0 {
		return ""
	}
	b = b[i+len(open):]
	j := bytes.Index(b, []byte(shut))
	if j < 0 {
		return ""
	}
	return string(b[:j])
}
