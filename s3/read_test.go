package s3

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/internal/oerr"
	"objstore/metadata"
	"objstore/s3/auth/authtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRanges(t *testing.T) {
	for _, tc := range []struct {
		header string
		size   int64
		want   string
	}{
		{"bytes=0-9", 100, "0+10"}, {"bytes=90-", 100, "90+10"}, {"bytes=-5", 100, "95+5"}, {"bytes=-500", 100, "0+100"}, {"bytes=0-1000", 100, "0+100"},
		{"bytes=99-99", 100, "99+1"}, {"bytes=100-", 100, "416"}, {"bytes=100-200", 100, "416"}, {"bytes=-0", 100, "416"}, {"bytes=0-", 0, "416"}, {"bytes=-5", 0, "416"},
		{"bytes=0-0,5-6", 100, "whole"}, {"bytes=5-4", 100, "whole"}, {"bytes=a-b", 100, "whole"}, {"bytes=-", 100, "whole"}, {"bytes=", 100, "whole"}, {"lines=0-1", 100, "whole"},
		{"bytes=+1-2", 100, "whole"}, {"bytes=1 - 2", 100, "whole"}, {"0-9", 100, "whole"}, {"bytes=0-99999999999999999999999", 100, "0+100"}, {"bytes=99999999999999999999999-", 100, "416"},
		{"bytes=-99999999999999999999999", 100, "0+100"}, {"bytes=9223372036854775807-", 100, "416"},
	} {
		s, ok, err := parseRange(tc.header, tc.size)
		got := "whole"
		if err != nil {
			got = "416"
		} else if ok {
			got = fmt.Sprintf("%d+%d", s.off, s.n)
		}
		if got != tc.want {
			t.Errorf("%q of %d bytes: %s, expected %s", tc.header, tc.size, got, tc.want)
		}
	}
}

func FuzzRange(f *testing.F) {
	f.Add("bytes=0-9", int64(100))
	f.Add("bytes=-5", int64(0))
	f.Fuzz(func(t *testing.T, h string, size int64) {
		if size < 0 {
			return
		}
		if s, ok, err := parseRange(h, size); err == nil && ok && (s.off < 0 || s.n < 1 || s.off+s.n > size) {
			t.Fatalf("%q of %d bytes gives %+v", h, size, s)
		}
		if f, err := copyRange(h); err == nil {
			if off, n, err := f(size); err == nil && (off < 0 || n < 0 || off+n > size) {
				t.Fatalf("copy range %q of %d bytes gives %d+%d", h, size, off, n)
			}
		}
	})
}

func TestReadsOfRangesPartsAndConditions(t *testing.T) {
	ts := start(t, Config{})
	ts.do(t, "PUT", "/bucket/k", []byte("0123456789"), "Content-Type", "a/b", "Cache-Control", "no-cache", "x-amz-checksum-crc32", crcB64([]byte("0123456789")))
	o, err := ts.engine.get("bucket", "k")
	if err != nil {
		t.Fatal(err)
	}
	etag, mod := `"`+o.v.ETag+`"`, seconds(o.v.ModTime).UTC()
	at := func(d time.Duration) string { return mod.Add(d).Format(http.TimeFormat) }
	for _, tc := range []struct {
		name    string
		headers []string
		status  int
		body    string
	}{
		{"whole", nil, 200, "0123456789"},
		{"range", []string{"Range", "bytes=2-4"}, 206, "234"},
		{"suffix", []string{"Range", "bytes=-3"}, 206, "789"},
		{"two ranges", []string{"Range", "bytes=0-1,3-4"}, 200, "0123456789"},
		{"If-Range of this version", []string{"Range", "bytes=2-4", "If-Range", etag}, 206, "234"},
		{"If-Range of another version", []string{"Range", "bytes=2-4", "If-Range", `"0"`}, 200, "0123456789"},
		{"If-Range by this date", []string{"Range", "bytes=2-4", "If-Range", at(0)}, 206, "234"},
		{"If-Range by another date", []string{"Range", "bytes=2-4", "If-Range", at(time.Hour)}, 200, "0123456789"},
		{"If-Match", []string{"If-Match", etag}, 200, "0123456789"},
		{"If-Match without quotes", []string{"If-Match", o.v.ETag}, 200, "0123456789"},
		{"If-Match in a list", []string{"If-Match", `"0", ` + etag}, 200, "0123456789"},
		{"If-Match any", []string{"If-Match", "*"}, 200, "0123456789"},
		{"If-Match weakly", []string{"If-Match", "W/" + etag}, 412, ""},
		{"If-None-Match", []string{"If-None-Match", etag}, 304, ""},
		{"If-None-Match weakly", []string{"If-None-Match", "W/" + etag}, 304, ""},
		{"If-None-Match another", []string{"If-None-Match", `"0"`}, 200, "0123456789"},
		{"If-Modified-Since now", []string{"If-Modified-Since", at(0)}, 304, ""},
		{"If-Modified-Since before", []string{"If-Modified-Since", at(-time.Second)}, 200, "0123456789"},
		{"If-Unmodified-Since now", []string{"If-Unmodified-Since", at(0)}, 200, "0123456789"},
		{"If-Unmodified-Since before", []string{"If-Unmodified-Since", at(-time.Second)}, 412, ""},
		{"If-Match wins over If-Unmodified-Since", []string{"If-Match", etag, "If-Unmodified-Since", at(-time.Hour)}, 200, "0123456789"},
		{"If-None-Match wins over If-Modified-Since", []string{"If-None-Match", `"0"`, "If-Modified-Since", at(time.Hour)}, 200, "0123456789"},
		{"If-None-Match hit although modified", []string{"If-None-Match", etag, "If-Modified-Since", at(-time.Hour)}, 304, ""},
		{"a date that is none", []string{"If-Modified-Since", "yesterday"}, 200, "0123456789"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, method := range []string{"GET", "HEAD"} {
				a := ts.do(t, method, "/bucket/k", nil, tc.headers...)
				if a.StatusCode != tc.status {
					t.Fatalf("%s: %d %s, expected %d", method, a.StatusCode, a.body, tc.status)
				}
				if method == "GET" && tc.status < 300 && string(a.body) != tc.body || method == "HEAD" && len(a.body) > 0 {
					t.Errorf("%s: body %q", method, a.body)
				}
				if tc.status < 300 && a.ContentLength != int64(len(tc.body)) {
					t.Errorf("%s: Content-Length %d", method, a.ContentLength)
				}
				if tc.status == 304 && (a.Header.Get("Etag") != etag || a.Header.Get("Cache-Control") != "no-cache" || a.Header.Get("Content-Type") != "") {
					t.Errorf("%s: headers of 304: %v", method, a.Header)
				}
			}
		})
	}
	a := ts.do(t, "GET", "/bucket/k?partNumber=1", nil, "x-amz-checksum-mode", "ENABLED")
	if a.StatusCode != 206 || a.Header.Get("Content-Range") != "bytes 0-9/10" || a.Header.Get("X-Amz-Checksum-Crc32") == "" || a.Header.Get("X-Amz-Mp-Parts-Count") != "" {
		t.Errorf("part 1: %d %v", a.StatusCode, a.Header)
	}
	a = ts.do(t, "GET", "/bucket/k", nil, "Range", "bytes=10-", "x-amz-checksum-mode", "ENABLED")
	if a.StatusCode != 416 || a.Header.Get("Content-Range") != "bytes */10" {
		t.Errorf("beyond the end: %d %v", a.StatusCode, a.Header)
	}
	a = ts.do(t, "GET", "/bucket/k", nil, "Range", "bytes=0-1", "x-amz-checksum-mode", "ENABLED")
	if a.Header.Get("X-Amz-Checksum-Crc32") != "" {
		t.Error("a range has the checksum of the whole")
	}
	a = ts.do(t, "GET", "/bucket/k?response-content-type=x%2Fy&response-expires=never", nil)
	if a.Header.Get("Content-Type") != "x/y" || a.Header.Get("Expires") != "never" {
		t.Errorf("overrides: %v", a.Header)
	}
	if m := ts.metrics.last(); m != (observed{"GetObject", 200, "", 0, 10}) {
		t.Errorf("metrics: %+v", m)
	}
}

// A body that fails half-way must never look whole.
func TestAFailingReadAbortsTheConnection(t *testing.T) {
	ts := start(t, Config{})
	body := random(3 << 20)
	ts.do(t, "PUT", "/bucket/k", body)
	broken := oerr.E("x", oerr.Unavailable, nil)
	for _, n := range []int{1, 100, 2 << 20} {
		ts.engine.set(func() {
			ts.engine.failRead = func(w io.Writer, b []byte) error {
				if _, err := w.Write(b[:n]); err != nil {
					return err
				}
				return broken
			}
		})
		r := ts.request(t, "GET", "/bucket/k", nil)
		signer().Sign(r, authtest.Hash(nil))
		res, err := ts.Client().Do(r)
		if err == nil {
			if n <= 100 { // less than net/http buffers: an abort sends none of it
				t.Errorf("after %d bytes the handler ended as if all were well", n)
			}
			var got []byte
			got, err = io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil {
				t.Errorf("after %d bytes: the client read %d bytes of %d without an error", n, len(got), len(body))
			}
		}
	}
	ts.engine.set(func() { ts.engine.failRead = func(io.Writer, []byte) error { return broken } })
	if a := ts.do(t, "GET", "/bucket/k", nil); a.StatusCode != 503 || a.code() != "ServiceUnavailable" || a.Header.Get("Etag") != "" {
		t.Errorf("an error before the first byte: %d %s %v", a.StatusCode, a.body, a.Header)
	}
	ts.engine.set(func() { // short, and no error
		ts.engine.failRead = func(w io.Writer, b []byte) error { _, err := w.Write(b[:10]); return err }
	})
	r := ts.request(t, "GET", "/bucket/k", nil)
	signer().Sign(r, authtest.Hash(nil))
	if res, err := ts.Client().Do(r); err == nil {
		if _, err = io.ReadAll(res.Body); err == nil {
			t.Error("a short body without an engine error reached the client as whole")
		}
		res.Body.Close()
	}
}

func TestTooManyRequestsAreRefusedAtOnce(t *testing.T) {
	ts := start(t, Config{MaxRequests: 2})
	ts.do(t, "PUT", "/bucket/k", []byte("x"))
	block := make(chan struct{})
	ts.engine.set(func() { ts.engine.blockOpen = block })
	var wg sync.WaitGroup
	results := make(chan int, 2)
	for range 2 {
		wg.Go(func() { results <- ts.do(t, "GET", "/bucket/k", nil).StatusCode })
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		a := ts.do(t, "GET", "/bucket?location", nil)
		if a.StatusCode == 503 && a.code() == "SlowDown" && a.Header.Get("Retry-After") != "" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("two requests are being served and a third got %d", a.StatusCode)
		}
	}
	if a := ts.send(t, ts.request(t, "GET", "/-/live", nil)); a.StatusCode != 200 {
		t.Errorf("a busy node is not alive: %d", a.StatusCode)
	}
	close(block)
	wg.Wait()
	for range 2 {
		if s := <-results; s != 200 {
			t.Errorf("a request that had its slot got %d", s)
		}
	}
}

func TestHealthNeedsNoCredentialAndHidesNoObject(t *testing.T) {
	ts := start(t, Config{Domain: "s3.example"})
	for path, want := range map[string]int{"/-/live": 200, "/-/ready": 200, "/-/cluster": 200, "/-/other": 404} {
		if a := ts.send(t, ts.request(t, "GET", path, nil)); a.StatusCode != want {
			t.Errorf("%s: %d", path, a.StatusCode)
		}
	}
	ts.health.err = errors.New("secret reason")
	for path, want := range map[string]int{"/-/live": 200, "/-/ready": 503, "/-/cluster": 503} {
		if a := ts.send(t, ts.request(t, "GET", path, nil)); a.StatusCode != want || bytes.Contains(a.body, []byte("secret")) {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
		}
	}
	// In virtual-host style the same path is a key.
	r := ts.request(t, "PUT", "/-/live", []byte("x"))
	r.Host = "bucket.S3.example:9000"
	signer().Sign(r, authtest.Hash([]byte("x")))
	if a := ts.send(t, r); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if _, err := ts.engine.get("bucket", "-/live"); err != nil {
		t.Error(err)
	}
}

// dial sends raw bytes, for what http.Client would not send.
func dial(t *testing.T, ts *testServer, raw string) (net.Conn, *bufio.Reader) {
	c, err := net.Dial("tcp", ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// wire writes a signed request's head.
func wireHead(t *testing.T, ts *testServer, method, path, payload string, headers ...string) string {
	r := ts.request(t, method, path, nil, headers...)
	signer().Sign(r, payload)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, r.Host)
	for k, v := range r.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", k, v[0])
	}
	return b.String()
}

func TestAPutWithoutALengthIsRefused(t *testing.T) {
	ts := start(t, Config{})
	for name, rest := range map[string]string{"none": "\r\n", "chunked": "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"} {
		_, br := dial(t, ts, wireHead(t, ts, "PUT", "/bucket/k", "UNSIGNED-PAYLOAD")+rest)
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 411 || !bytes.Contains(body, []byte("MissingContentLength")) {
			t.Errorf("length %s: %d %s", name, res.StatusCode, body)
		}
	}
}

func TestARefusalComesBeforeTheBodyIsAskedFor(t *testing.T) {
	ts := start(t, Config{})
	for name, tc := range map[string]struct{ headers, want string }{
		"too large":         {"Content-Length: 5368709121\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 400"},
		"unsigned x-amz":    {"Content-Length: 5\r\nX-Amz-Meta-A: 1\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 403"},
		"a good one is not": {"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", "HTTP/1.1 100"},
	} {
		_, br := dial(t, ts, wireHead(t, ts, "PUT", "/bucket/k", "UNSIGNED-PAYLOAD")+tc.headers)
		line, err := br.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, tc.want) {
			t.Errorf("%s: %q %v", name, line, err)
		}
	}
}

func TestASlowClientLosesItsConnection(t *testing.T) {
	ts := start(t, Config{IdleTimeout: 200 * time.Millisecond})
	_, br := dial(t, ts, wireHead(t, ts, "PUT", "/bucket/k", "UNSIGNED-PAYLOAD")+"Content-Length: 10\r\n\r\n01234")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 400 || !bytes.Contains(body, []byte("RequestTimeout")) {
		t.Errorf("a body that stops: %d %s", res.StatusCode, body)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("the connection is still open: %v", err)
	}
	// A refused request does not wait for its body either.
	_, br = dial(t, ts, "PUT /bucket/k HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n01234")
	if res, err = http.ReadResponse(br, nil); err != nil || res.StatusCode != 403 {
		t.Errorf("an unsigned request whose body stops: %v %v", res, err)
	}
	// A client that takes nothing: the write fails and the handler ends.
	big := make([]byte, 64<<20)
	ts.do(t, "PUT", "/bucket/k", []byte("x"))
	ts.engine.set(func() {
		o := ts.engine.buckets["bucket"].objects["k"]
		o.v.Size, o.body = int64(len(big)), big
	})
	dial(t, ts, wireHead(t, ts, "GET", "/bucket/k", authtest.Hash(nil))+"\r\n")
	deadline := time.Now().Add(20 * time.Second)
	for ts.metrics.last().op != "GetObject" {
		if time.Now().After(deadline) {
			t.Fatal("the handler of a client that takes nothing did not end")
		}
		http.DefaultClient.CloseIdleConnections() // gives the scheduler something to do
	}
	if m := ts.metrics.last(); m.code == "" || m.out >= int64(len(big)) {
		t.Errorf("metrics: %+v", m)
	}
}

func TestAConnectionOutlivesTheIdleTimeBetweenRequests(t *testing.T) {
	ts := start(t, Config{IdleTimeout: 50 * time.Millisecond})
	c, br := dial(t, ts, "")
	for i := range 3 {
		head := wireHead(t, ts, "PUT", "/bucket/k", "UNSIGNED-PAYLOAD")
		if i > 0 {
			<-time.After(120 * time.Millisecond) // the passing of time is what is tested
		}
		if _, err := io.WriteString(c, head+"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("request %d: %q %v", i, line, err)
		}
		br.ReadString('\n')
		io.WriteString(c, "hello")
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("request %d: %v %v", i, res, err)
		}
		io.Copy(io.Discard, res.Body)
	}
}

func TestTheAccessLogHasOneLineForEachRequestAndNoKey(t *testing.T) {
	var buf bytes.Buffer
	ts := &testServer{engine: newFake(), metrics: &fakeMetrics{}, health: &fakeHealth{}}
	deps := ts.deps()
	deps.Logger = slog.New(slog.NewTextHandler(&buf, nil))
	h, err := New(Config{}, deps)
	if err != nil {
		t.Fatal(err)
	}
	ts.engine.CreateBucket(context.Background(), "bucket", "")
	r := httptest.NewRequest("PUT", "http://h.example/bucket/private-name", strings.NewReader("hello"))
	r.Header.Set("Content-Length", "5")
	signer().Sign(r, authtest.Hash([]byte("hello")))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatal(w.Body.String())
	}
	line := buf.String()
	for _, want := range []string{"op=PutObject", "bucket=bucket", "status=200", "bytes_in=5", "request_id=" + w.Header().Get("X-Amz-Request-Id"), "key_hash="} {
		if !strings.Contains(line, want) {
			t.Errorf("the log line lacks %s: %s", want, line)
		}
	}
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "private-name") || strings.Contains(line, testSecret) {
		t.Errorf("log: %s", line)
	}
}

func TestNewNamesEverythingThatIsMissing(t *testing.T) {
	_, err := New(Config{}, Deps{})
	for _, want := range []string{"Buckets", "Objects", "Uploads", "Parts", "Credentials", "Health"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if _, err := New(Config{MaxRequests: -1, IdleTimeout: -1}, Deps{}); err == nil || !strings.Contains(err.Error(), "MaxRequests") || !strings.Contains(err.Error(), "IdleTimeout") {
		t.Errorf("bad settings: %v", err)
	}
}

func TestPartsAreFoundByTheirPlace(t *testing.T) {
	v := &metadata.Version{Size: 6, Parts: []metadata.Part{{Number: 1, Size: 1}, {Number: 4, Size: 2}, {Number: 9, Size: 3}}}
	for n, want := range map[int]span{1: {0, 1}, 2: {1, 2}, 3: {3, 3}} {
		if s, err := partSpan(v, n); err != nil || s != want {
			t.Errorf("part %d: %+v %v", n, s, err)
		}
	}
	if _, err := partSpan(v, 4); err == nil {
		t.Error("part 4 of 3 was found")
	}
}
