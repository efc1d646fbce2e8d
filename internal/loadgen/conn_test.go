package loadgen

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// reply runs the response parser over raw bytes.
func reply(raw string, noBody bool) (answer, string, error) {
	c := &conn{br: bufio.NewReaderSize(strings.NewReader(raw), readBuffer)}
	a, err := c.readHead()
	for err == nil && a.status >= 100 && a.status < 200 {
		a, err = c.readHead()
	}
	if err != nil {
		return a, "", err
	}
	if noBody {
		a.length, a.chunked = 0, false
	}
	b, err := io.ReadAll(c.bodyReader(&a))
	return a, string(b), err
}

func TestResponsesAreParsed(t *testing.T) {
	for _, c := range []struct{ raw, body string }{
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
		{"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n", "hello"},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "x"},
		{"HTTP/1.0 200 OK\r\n\r\nuntil the end", "until the end"},
	} {
		if a, body, err := reply(c.raw, false); err != nil || a.status != 200 || body != c.body {
			t.Errorf("%q: %+v %q %v", c.raw, a, body, err)
		}
	}
}

func TestBrokenResponsesAreErrors(t *testing.T) {
	for _, raw := range []string{"", "HTTP/1.1 200", "SPDY/9.9 200 OK\r\n\r\n", "HTTP/1.1 abc OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxHeaders+1) + "\r\n",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", maxHeaderLine) + "\r\n\r\n"} {
		if a, body, err := reply(raw, false); err == nil {
			t.Errorf("%.60q: accepted as %+v %q", raw, a, body)
		}
	}
}

func FuzzResponse(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\n\r\n")
	f.Add("HTTP/1.1 204 No Content\r\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		if a, body, err := reply(raw, false); err == nil && len(body) > len(raw) {
			t.Fatalf("%q: a body of %d bytes out of %d: %+v", raw, len(body), len(raw), a)
		}
	})
}
