package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"objstore/internal/config"
	"objstore/internal/oerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode answers from fields.
type fakeNode struct {
	err   error
	block chan struct{} // Info waits for it
	in    chan struct{} // tells that Info is in
	ttl   time.Duration
	key   string
}

func (f *fakeNode) Info(ctx context.Context) (Info, error) {
	if f.block != nil {
		f.in <- struct{}{}
		<-f.block
	}
	return Info{ClusterID: "c1", Formed: true, Profile: "2+2", Nodes: []NodeInfo{{ID: 1, Name: "n1", State: StateAlive}},
		Drives: []DriveInfo{{ID: 1, Node: 1, State: "active", CapacityBytes: 3 << 30}}, Repair: RepairInfo{Pending: 7}}, f.err
}

func (f *fakeNode) Object(_ context.Context, bucket, key string) (ObjectReport, error) {
	f.key = key
	return ObjectReport{Bucket: bucket, Key: key, Shards: []ShardReport{{Index: 1, State: ShardCorrupt, Path: "/d/x"}}}, f.err
}

func (f *fakeNode) Token(_ context.Context, ttl time.Duration) (Token, error) {
	f.ttl = ttl
	return Token{Token: "t"}, f.err
}

func serve(t *testing.T, node Node) (*httptest.Server, *Client) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg, false)
	if err != nil {
		t.Fatal(err)
	}
	m.CountShard("tcp", "put", 100)
	h, err := New(Config{Metrics: reg, Settings: config.Default(), Pprof: true, Authenticate: func(r *http.Request) error {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=root/") {
			return oerr.Errorf("test", oerr.PermissionDenied, "not root")
		}
		return nil
	}}, node)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := NewClient([]string{s.URL}, "root", "secret", "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func TestTheClientGetsWhatTheNodeSays(t *testing.T) {
	f := &fakeNode{}
	_, c := serve(t, f)
	ctx := context.Background()
	if v, err := c.Info(ctx); err != nil || v.ClusterID != "c1" || v.Repair.Pending != 7 || v.Nodes[0].State != "alive" {
		t.Errorf("info %+v, %v", v, err)
	}
	key := "a b/ü&x=1/%2F+"
	if v, err := c.Object(ctx, "buck", key); err != nil || v.Shards[0].State != "corrupt" || f.key != key {
		t.Errorf("object %+v (key %q), %v", v, f.key, err)
	}
	if v, err := c.Token(ctx, 0); err != nil || v.Token != "t" || f.ttl != time.Hour {
		t.Errorf("token %+v for %s, %v", v, f.ttl, err)
	}
	if _, err := c.Token(ctx, 5*time.Minute); err != nil || f.ttl != 5*time.Minute {
		t.Errorf("token for %s, %v", f.ttl, err)
	}
	if _, err := c.Token(ctx, time.Second); !oerr.Is(err, oerr.InvalidArgument) {
		t.Errorf("token for a second: %v", err)
	}
	if rows, err := c.Settings(ctx); err != nil || len(rows) != len(config.Default().Rows()) {
		t.Errorf("%d settings, %v", len(rows), err)
	}
}

func TestOnlyMetricsAndHealthAreOpenToEverybody(t *testing.T) {
	s, _ := serve(t, &fakeNode{})
	for path, want := range map[string]int{"/metrics": 200, "/-/live": 200, "/v1/info": 403, "/v1/object?bucket=a&key=b": 403, "/v1/config": 403,
		"/debug/pprof/": 403, "/debug/pprof/heap": 403, "/debug/pprof/profile?seconds=1": 403, "/debug/pprof/cmdline": 403,
		"/debug/pprof/trace": 403, "/debug/pprof/symbol": 403, "/nothing": 501} {
		if got, body := get(t, s.URL+path); got != want {
			t.Errorf("%s: %d, want %d: %.100s", path, got, want, body)
		}
	}
	if _, body := get(t, s.URL+"/metrics"); !strings.Contains(body, `objstore_shard_bytes_total{op="put",transport="tcp"} 100`) {
		t.Errorf("metrics: %s", body)
	}
	if resp, err := http.Post(s.URL+"/v1/token", "", nil); err != nil || resp.StatusCode != 403 {
		t.Errorf("token: %v, %v", resp, err)
	} else {
		resp.Body.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

func TestKindsCrossTheWire(t *testing.T) {
	for _, kind := range []oerr.Kind{oerr.NoSuchKey, oerr.NoSuchBucket, oerr.Unavailable, oerr.Corrupt, oerr.InvalidArgument} {
		_, c := serve(t, &fakeNode{err: oerr.Errorf("x", kind, "because")})
		if _, err := c.Object(context.Background(), "b", "k"); !oerr.Is(err, kind) || !strings.Contains(err.Error(), "because") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestTheClientGoesOnToANodeThatCanAnswer(t *testing.T) {
	down, _ := serve(t, &fakeNode{err: oerr.E("x", oerr.Unavailable, nil)})
	up, _ := serve(t, &fakeNode{})
	c, err := NewClient([]string{"http://127.0.0.1:1", down.URL, up.URL}, "root", "s", "r")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := c.Info(context.Background()); err != nil || v.ClusterID != "c1" {
		t.Errorf("%+v, %v", v, err)
	}
	absent, _ := serve(t, &fakeNode{err: oerr.E("x", oerr.NoSuchKey, nil)})
	c, _ = NewClient([]string{absent.URL, up.URL}, "root", "s", "r")
	if _, err := c.Object(context.Background(), "b", "k"); !oerr.Is(err, oerr.NoSuchKey) {
		t.Errorf("an authoritative answer was not taken: %v", err)
	}
	c, _ = NewClient([]string{up.URL}, "other", "s", "r")
	if _, err := c.Info(context.Background()); !oerr.Is(err, oerr.PermissionDenied) {
		t.Errorf("wrong credentials: %v", err)
	}
}

func TestRequestsBeyondTheLimitAreRefusedAtOnce(t *testing.T) {
	f := &fakeNode{block: make(chan struct{}), in: make(chan struct{})}
	_, c := serve(t, f)
	done := make(chan error, maxConcurrent)
	for range maxConcurrent {
		go func() { _, err := c.Info(context.Background()); done <- err }()
		<-f.in
	}
	if _, err := c.Info(context.Background()); !oerr.Is(err, oerr.Busy) {
		t.Errorf("one too many: %v", err)
	}
	close(f.block)
	for range maxConcurrent {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAnswersThatAreNotOursAreErrors(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }))
	defer s.Close()
	c, _ := NewClient([]string{s.URL}, "root", "s", "r")
	if _, err := c.Info(context.Background()); err == nil || !strings.Contains(err.Error(), "no JSON") {
		t.Errorf("error %v", err)
	}
	if _, err := NewClient([]string{"ftp://x"}, "", "", ""); err == nil || !strings.Contains(err.Error(), "ftp") || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("error %v", err)
	}
	if err := (&Config{}).Validate(); err == nil || strings.Count(err.Error(), "nil") != 3 {
		t.Errorf("error %v", err)
	}
}

func TestTheJSONHasTheNamesThatProgramsRead(t *testing.T) {
	f := &fakeNode{}
	info, _ := f.Info(context.Background())
	object, _ := f.Object(context.Background(), "b", "k")
	b, err := json.Marshal([]any{info, object})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cluster_id", "format", "formed", "profile", "map_epoch", "nodes", "id", "name", "state", "s3", "admin", "internode", "leaders",
		"drives", "node", "path", "capacity_bytes", "free_bytes", "shards", "groups", "repair", "pending", "lost", "buckets",
		"version", "part", "blob", "index", "drive", "offset", "length"} {
		if !bytes.Contains(b, []byte(`"`+name+`":`)) {
			t.Errorf("no %q in %s", name, b)
		}
	}
	var out bytes.Buffer
	if err := info.WriteTable(&out); err != nil || !strings.Contains(out.String(), "7 pending") || !strings.Contains(out.String(), "3.0 GiB") {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	if err := object.WriteTable(&out); err != nil || !strings.Contains(out.String(), "corrupt") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestEverySourceBecomesMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if _, err := NewMetrics(reg, false); err != nil {
		t.Fatal(err)
	}
	err := Sources{Node: "n1", Version: "v",
		Drives: func() []DriveStats {
			return []DriveStats{{Drive: 1, Path: "/d1", FreeBytes: 5}, {Drive: 2, Path: "/d2", Fenced: true}}
		},
		Groups:  func() []GroupStats { return []GroupStats{{Group: 0, Leader: true}, {Group: 3}} },
		Hosts:   func() []HostStats { return []HostStats{{Drive: 1, Proposals: 9}} },
		Cluster: func() ClusterStats { return ClusterStats{Nodes: 4} },
		Repair:  func() RepairStats { return RepairStats{Pending: 2, Rebuilt: 3} },
		Memory:  func() []PoolStats { return []PoolStats{{Pool: "put", BudgetBytes: 1}} },
	}.Register(reg)
	if err != nil {
		t.Fatal(err)
	}
	fams, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range fams {
		got[f.GetName()] = fmt.Sprint(f.GetMetric())
		if !strings.HasPrefix(f.GetName(), "objstore_") || f.GetHelp() == "" {
			t.Errorf("metric %s: %q", f.GetName(), f.GetHelp())
		}
	}
	for _, name := range []string{"s3_requests_in_flight", "shard_bytes_total", "drive_fenced", "drive_free_bytes", "meta_leader", "meta_proposals_total",
		"cluster_nodes", "repair_pending", "repair_done_total", "shard_buffer_budget_bytes", "cluster_info"} {
		if got["objstore_"+name] == "" {
			t.Errorf("no objstore_%s", name)
		}
	}
}

func TestRequestsAreCountedByOperationAndStatus(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg, true)
	if err != nil {
		t.Fatal(err)
	}
	m.S3Begin()
	m.S3("PutObject", 200, 10, 0, time.Millisecond)
	m.S3("PutObject", 200, 10, 0, time.Millisecond)
	m.S3("GetObject", 503, 0, 5, time.Second)
	m.S3End()
	m.ConnectionRefused("magic")
	m.Event("x")
	h, _ := New(Config{Metrics: reg, Settings: config.Default(), Authenticate: func(*http.Request) error { return nil }}, &fakeNode{})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`objstore_s3_requests_total{code="200",op="PutObject"} 2`, `objstore_s3_received_bytes_total{op="PutObject"} 20`,
		`objstore_s3_requests_total{code="503",op="GetObject"} 1`, `objstore_s3_request_seconds_count{op="PutObject"} 2`, `objstore_s3_requests_in_flight 0`,
		`objstore_cluster_events_total{event="x"} 1`, `objstore_cluster_connections_refused_total{reason="magic"} 1`, "go_goroutines"} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("no line %q", line)
		}
	}
}

func BenchmarkMetricsOfOneRequest(b *testing.B) {
	m, err := NewMetrics(prometheus.NewRegistry(), false)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.S3("PutObject", 200, 4096, 0, time.Millisecond)
		m.CountShard("local", "put", 2048)
	}
}
