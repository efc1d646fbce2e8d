package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"objstore/internal/oerr"
	"objstore/s3/auth/authtest"
)

type fakeHealth struct{ err error }

func (h *fakeHealth) Live(context.Context) error    { return nil }
func (h *fakeHealth) Ready(context.Context) error   { return h.err }
func (h *fakeHealth) Cluster(context.Context) error { return h.err }

// observed is what the metrics hook was told.
type observed struct {
	op      string
	status  int
	code    string
	in, out int64
}

type fakeMetrics struct {
	mu  sync.Mutex
	all []observed
}

func (m *fakeMetrics) ObserveRequest(op string, status int, code string, in, out int64, _ time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, observed{op, status, code, in, out})
}

func (m *fakeMetrics) last() observed {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) == 0 {
		return observed{}
	}
	return m.all[len(m.all)-1]
}

const (
	testKey    = "AKTEST"
	testSecret = "a secret/for+tests"
)

// testServer is a real HTTP server over the fake engine.
type testServer struct {
	*httptest.Server
	engine  *fakeEngine
	metrics *fakeMetrics
	health  *fakeHealth
}

func lookup(_ context.Context, key string) (string, bool, error) {
	switch key {
	case testKey:
		return testSecret, true, nil
	case "UNKNOWABLE":
		return "", false, oerr.E("fake", oerr.Unavailable, nil)
	}
	return "", false, nil
}

func (ts *testServer) deps() Deps {
	e := ts.engine
	return Deps{Buckets: e, Objects: e, Uploads: e, Parts: e, Credentials: lookup, Health: ts.health, Metrics: ts.metrics}
}

func start(t testing.TB, cfg Config) *testServer {
	t.Helper()
	ts := &testServer{engine: newFake(), metrics: &fakeMetrics{}, health: &fakeHealth{}}
	ts.engine.readAll = true
	h, err := New(cfg, ts.deps())
	if err != nil {
		t.Fatal(err)
	}
	ts.Server = httptest.NewUnstartedServer(h)
	ConfigureServer(ts.Config)
	ts.Start()
	t.Cleanup(ts.Close)
	if err := ts.engine.CreateBucket(context.Background(), "bucket", ""); err != nil {
		t.Fatal(err)
	}
	return ts
}

func signer() *authtest.Signer {
	return &authtest.Signer{AccessKey: testKey, Secret: testSecret, Region: "us-east-1", Now: time.Now()}
}

// answer is a response, read whole.
type answer struct {
	*http.Response
	body []byte
	err  error // of reading the body
}

// request makes a request; the path is put on the wire as it is.
func (ts *testServer) request(t testing.TB, method, pathQuery string, body []byte, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, ts.URL+pathQuery, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func (ts *testServer) send(t testing.TB, r *http.Request) answer {
	t.Helper()
	res, err := ts.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res, body, err}
}

// do signs with a literal hash and sends.
func (ts *testServer) do(t testing.TB, method, pathQuery string, body []byte, headers ...string) answer {
	t.Helper()
	r := ts.request(t, method, pathQuery, body, headers...)
	signer().Sign(r, authtest.Hash(body))
	return ts.send(t, r)
}

// code is the S3 code of an error answer, or "" and the status.
func (a answer) code() string {
	_, rest, ok := strings.Cut(string(a.body), "<Code>")
	if !ok {
		return fmt.Sprintf("(%d)", a.StatusCode)
	}
	c, _, _ := strings.Cut(rest, "</Code>")
	return c
}
