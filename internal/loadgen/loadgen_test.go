package loadgen

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fakeS3 keeps objects in a map and checks what every request must have.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string][]byte
	short   bool // answer GETs one byte short
	fail    int  // answer this many requests with 503
	bad     []string

	continued bool // a second page was asked for
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := sha256.Sum256(body)
	if got := r.Header.Get("X-Amz-Content-Sha256"); got != hex.EncodeToString(sum[:]) && got != "UNSIGNED-PAYLOAD" {
		f.bad = append(f.bad, "payload hash "+got)
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=ak/") {
		f.bad = append(f.bad, "authorization "+r.Header.Get("Authorization"))
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if key != "" && f.fail > 0 {
		f.fail--
		w.WriteHeader(503)
		io.WriteString(w, "<Error><Code>SlowDown</Code><Message>later</Message></Error>")
		return
	}
	switch {
	case key == "" && r.Method == "PUT":
		w.WriteHeader(409)
	case key == "":
		f.list(w, r)
	case r.Method == "PUT":
		f.objects[key] = body
	case r.Method == "DELETE":
		delete(f.objects, key)
		w.WriteHeader(204)
	default:
		b, ok := f.objects[key]
		if !ok {
			w.WriteHeader(404)
			return
		}
		if f.short {
			b = b[:len(b)-1]
		}
		if r.Method == "HEAD" {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			return
		}
		if len(b)%2 == 0 {
			w.(http.Flusher).Flush() // chunked
		}
		w.Write(b)
	}
}

func (f *fakeS3) list(w http.ResponseWriter, r *http.Request) {
	var keys []string
	f.continued = f.continued || r.URL.Query().Get("continuation-token") != ""
	for k := range f.objects {
		if strings.HasPrefix(k, r.URL.Query().Get("prefix")) && k > r.URL.Query().Get("continuation-token") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	next := ""
	if len(keys) > listPage {
		keys = keys[:listPage]
		next = "<NextContinuationToken>" + keys[listPage-1] + "</NextContinuationToken>"
	}
	io.WriteString(w, "<ListBucketResult>"+next)
	for _, k := range keys {
		io.WriteString(w, "<Contents><Key>"+k+"</Key></Contents>")
	}
	io.WriteString(w, "</ListBucketResult>")
}

func start(t *testing.T) (*fakeS3, Config) {
	t.Helper()
	f := &fakeS3{objects: map[string][]byte{}}
	s := httptest.NewServer(f)
	t.Cleanup(func() {
		s.Close()
		goleak.VerifyNone(t)
		if len(f.bad) > 0 {
			t.Errorf("bad requests: %q", f.bad[:1])
		}
	})
	return f, Config{Endpoints: []string{s.URL}, AccessKey: "ak", SecretKey: "sk", Region: "us-east-1", Bucket: "b", Prefix: "p/x y/",
		Op: "get", Size: 5000, Concurrency: 4, Duration: 30 * time.Millisecond, Objects: 20, Verify: true}
}

func TestEveryOperationIsMeasuredAndCleansUp(t *testing.T) {
	for _, op := range Ops() {
		sizes := []int64{5000}
		if op == "put" || op == "get" {
			sizes = []int64{0, 5000, 300_001}
		}
		for _, size := range sizes {
			t.Run(fmt.Sprint(op, size), func(t *testing.T) {
				f, cfg := start(t)
				cfg.Op, cfg.Size, cfg.Warm = op, size, true
				switch op {
				case "list":
					cfg.Objects = listPage + 1
				case "delete": // ends when nothing is left, however slow the machine is
					cfg.Duration = time.Minute
				}
				calls := 0
				cfg.Progress = func(Progress) { calls++ }
				res, err := Run(context.Background(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				if res.Ops == 0 || res.Errors != 0 || res.OpsPerS <= 0 || res.P50MS <= 0 || res.P99MS < res.P50MS {
					t.Errorf("result %+v", res)
				}
				if wantBytes := res.Ops * size; (op == "put" || op == "get") && res.Bytes != wantBytes {
					t.Errorf("%d bytes, want %d", res.Bytes, wantBytes)
				}
				if op == "list" && (res.Keys < listPage || res.KeysPerS <= 0 || res.Ops > 4 && !f.continued) {
					t.Errorf("%d keys listed in %d pages, continued: %v", res.Keys, res.Ops, f.continued)
				}
				if op == "delete" && res.Ops != 20 {
					t.Errorf("%d deletes of 20 objects", res.Ops)
				}
				if len(f.objects) != 0 || calls == 0 {
					t.Errorf("%d objects left, %d progress reports", len(f.objects), calls)
				}
			})
		}
	}
}

func TestKeptObjectsServeTheNextRun(t *testing.T) {
	f, cfg := start(t)
	cfg.Keep = true
	if _, err := Run(context.Background(), cfg); err != nil || len(f.objects) != 20 {
		t.Fatalf("%d objects kept, %v", len(f.objects), err)
	}
	cfg.NoPrepare, cfg.Verify, cfg.Op = true, false, "head"
	if res, err := Run(context.Background(), cfg); err != nil || res.Errors != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestAShortBodyIsAnError(t *testing.T) {
	f, cfg := start(t)
	f.short = true
	res, err := Run(context.Background(), cfg)
	if err == nil || !strings.Contains(err.Error(), "read 4999 bytes, expected 5000") {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestAWrongBodyIsAnError(t *testing.T) {
	f, cfg := start(t)
	cfg.Keep = true
	if _, err := Run(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	for _, b := range f.objects {
		b[100] ^= 1
	}
	cfg.NoPrepare = true
	if _, err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "body: wrong") {
		t.Errorf("error %v", err)
	}
}

func TestRefusalsAreCountedWithTheFirstOneNamed(t *testing.T) {
	f, cfg := start(t)
	cfg.Op, f.fail = "put", 3
	res, err := Run(context.Background(), cfg)
	if err != nil || res.Errors != 3 || !strings.Contains(res.FirstError, "503 SlowDown: later") || res.Ops == 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestADeadEndpointIsAnError(t *testing.T) {
	_, cfg := start(t)
	cfg.Endpoints = []string{"http://127.0.0.1:1"}
	if _, err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}

func TestEveryProblemOfAConfigurationIsNamed(t *testing.T) {
	err := (&Config{Endpoints: []string{"ftp://x", "http://h/path"}, Op: "steal", Bucket: "a/b", Size: -1, Objects: -1}).Validate()
	for _, w := range []string{`"ftp://x"`, `"http://h/path"`, `"steal"`, `"a/b"`, "size: read -1", "concurrency: read 0", "duration", "objects", "AWS_ACCESS_KEY_ID"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v does not say %s", err, w)
		}
	}
}

func TestQuantilesAreRightWithinFourPerCent(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	var h, parts hist
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(rng.ExpFloat64() * float64(5*time.Millisecond))
		all = append(all, d)
		parts.add(d)
	}
	h.merge(&parts)
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
		want, got := all[int(q*float64(len(all)-1))], h.quantile(q)
		if got < want || float64(got) > float64(want)*1.04+1 {
			t.Errorf("seed %d: quantile %.2f is %s, want %s", seed, q, got, want)
		}
	}
	var empty hist
	empty.add(1 << 62)
	if empty.quantile(1) < 1<<62 || (&hist{}).quantile(0.5) != 0 {
		t.Error("ends of the range")
	}
}
