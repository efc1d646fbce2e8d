package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"objstore/admin"
	"objstore/cmd/objstore/devcluster"
	"objstore/internal/config"
	"objstore/internal/oerr"
)

// run executes a command line and returns what it printed.
func run(t *testing.T, environ []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	code = execute(ctx, args, env{environ: environ, out: &o, err: &e})
	return code, o.String(), e.String()
}

// fakeNode is behind the admin API of these tests.
type fakeNode struct{ err error }

func (f fakeNode) Info(context.Context) (admin.Info, error) {
	return admin.Info{ClusterID: "c1", Formed: true, Nodes: []admin.NodeInfo{{Name: "n1", State: admin.StateAlive}}}, f.err
}

func (f fakeNode) Object(_ context.Context, bucket, key string) (admin.ObjectReport, error) {
	return admin.ObjectReport{Bucket: bucket, Key: key, Version: "v1", Shards: []admin.ShardReport{{State: admin.ShardOK}}}, f.err
}

func (f fakeNode) Token(_ context.Context, ttl time.Duration) (admin.Token, error) {
	return admin.Token{Token: "objt1." + ttl.String()}, f.err
}

// adminServer serves the admin API for the access key "root" and writes a dev.json that names it.
func adminServer(t *testing.T, err error) (url, dir string) {
	t.Helper()
	h, e := admin.New(admin.Config{Metrics: prometheus.NewRegistry(), Settings: config.Default(), Authenticate: func(r *http.Request) error {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=root/") {
			return oerr.Errorf("test", oerr.PermissionDenied, "not root")
		}
		return nil
	}}, fakeNode{err})
	if e != nil {
		t.Fatal(e)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	dir = t.TempDir()
	writeFile(t, filepath.Join(dir, "dev.json"), devcluster.State{AccessKey: "root", SecretKey: "secret", Region: "us-east-1",
		Nodes: []devcluster.NodeState{{Name: "n1", Admin: "http://127.0.0.1:1", S3: "http://127.0.0.1:1"}, {Name: "n2", Admin: s.URL, S3: s.URL}}})
	return s.URL, dir
}

func writeFile(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEveryCommandDocumentsItsExitStatus(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.HasParent() && !strings.Contains(c.Long, "EXIT STATUS") {
			t.Errorf("%s: no EXIT STATUS in its help", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(env{}))
}

func TestWrongUseIsStatusTwoAndSaysWhatWasRead(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		env  []string
		want string
	}{
		{args: []string{"explode"}, want: "explode"},
		{args: []string{"config", "extra"}, want: `"extra"`},
		{args: []string{"config", "--nope"}, want: "--nope"},
		{args: []string{"config"}, env: []string{"OBJ_SHARD_TSL=off"}, want: "OBJ_SHARD_TLS?"},
		{args: []string{"server"}, want: "read 0 data folders"},
		{args: []string{"server", dir, dir + "/"}, want: "given twice"},
		{args: []string{"server", dir, "--s3", "9000"}, want: `--s3: read "9000"`},
		{args: []string{"server", dir, "--gossip", "h:70000"}, want: `--gossip: read "h:70000"`},
		{args: []string{"server", dir, "--join", "h"}, want: "--token-file"},
		{args: []string{"server", dir, "--join", "h", "--token-file", "f", "--bootstrap-expect", "4"}, want: "founds a cluster or joins one"},
		{args: []string{"server", dir, "--bootstrap-expect", "99"}, want: "read 99"},
		{args: []string{"server", dir}, env: []string{"OBJ_RDMA_INTERNODE=on"}, want: "no RDMA transport"},
		{args: []string{"dev", "--nodes", "99", "--dir", dir}, want: "nodes: read 99"},
		{args: []string{"dev", "--host", "nowhere", "--dir", dir}, want: `"nowhere"`},
		{args: []string{"dev", "--dir", dir}, env: []string{"OBJ_X=1"}, want: "OBJ_X"},
		{args: []string{"dev", "kill"}, want: "expected a node's name"},
		{args: []string{"admin", "info"}, want: "AWS_ACCESS_KEY_ID"},
		{args: []string{"admin", "info", "--dir", dir}, want: "no dev cluster is running"},
		{args: []string{"admin", "object", "bucketonly"}, want: `"bucketonly"`},
		{args: []string{"healthcheck", "--check", "mood"}, want: `"mood"`},
		{args: []string{"bench", "--op", "steal"}, env: []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}, want: `"steal"`},
		{args: []string{"bench", "--op", "put", "--size", "64M"}, env: []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b"}, want: `"64M"`},
	} {
		code, _, errs := run(t, c.env, c.args...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, said %q; want 2 and %q", c.args, code, errs, c.want)
		}
	}
}

func TestAdminCommandsReachTheClusterByFolderAndByEnvironment(t *testing.T) {
	url, dir := adminServer(t, nil)
	aws := []string{"AWS_ACCESS_KEY_ID=root", "AWS_SECRET_ACCESS_KEY=secret"}
	for _, c := range []struct {
		env  []string
		args []string
	}{{nil, []string{"--dir", dir}}, {aws, []string{"--endpoint", url}}, {aws, []string{"--endpoint", "http://127.0.0.1:1," + url}}} {
		code, out, errs := run(t, c.env, append([]string{"admin", "info", "--json"}, c.args...)...)
		var info admin.Info
		if err := json.Unmarshal([]byte(out), &info); code != 0 || err != nil || info.ClusterID != "c1" {
			t.Errorf("%q: status %d, %q %q", c.args, code, out, errs)
		}
	}
	if code, out, _ := run(t, nil, "admin", "info", "--dir", dir); code != 0 || !strings.Contains(out, "n1") {
		t.Errorf("table: %d %q", code, out)
	}
	if code, out, _ := run(t, nil, "admin", "object", "b/some/key", "--json", "--dir", dir); code != 0 || !strings.Contains(out, `"some/key"`) {
		t.Errorf("object: %d %q", code, out)
	}
	if code, out, _ := run(t, nil, "cluster", "token", "--dir", dir, "--ttl", "5m"); code != 0 || out != "objt1.5m0s\n" {
		t.Errorf("token: %d %q", code, out)
	}
	if code, _, errs := run(t, []string{"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=y"}, "admin", "info", "--endpoint", url); code != exitFailed || !strings.Contains(errs, "not root") {
		t.Errorf("wrong credentials: %d %q", code, errs)
	}
	if code, _, errs := run(t, aws, "admin", "info", "--endpoint", "http://127.0.0.1:1"); code != exitFailed || !strings.Contains(errs, "refused") {
		t.Errorf("dead endpoint: %d %q", code, errs)
	}
}

func TestCredentialsAreFoundInADataFolder(t *testing.T) {
	url, _ := adminServer(t, nil)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "credentials.json"), devcluster.Credentials{AccessKey: "root", SecretKey: "secret"})
	if code, _, errs := run(t, nil, "admin", "info", "--dir", dir, "--endpoint", url); code != 0 {
		t.Errorf("status %d: %s", code, errs)
	}
}

func TestAnAbsentObjectIsStatusThreeAndAnUnknownOneIsNot(t *testing.T) {
	for kind, want := range map[oerr.Kind]int{oerr.NoSuchKey: exitAbsent, oerr.NoSuchBucket: exitAbsent, oerr.Unavailable: exitFailed} {
		_, dir := adminServer(t, oerr.E("x", kind, nil))
		if code, _, errs := run(t, nil, "admin", "object", "b/k", "--dir", dir); code != want {
			t.Errorf("%s: status %d (%s), want %d", kind, code, errs, want)
		}
	}
}

func TestHealthIsAsked(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/-/live" {
			http.Error(w, "no leader", http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	if code, out, errs := run(t, nil, "healthcheck", "--endpoint", s.URL+"/", "--check", "live"); code != 0 || !strings.Contains(out, "live") {
		t.Errorf("live: %d %q %q", code, out, errs)
	}
	if code, _, errs := run(t, nil, "healthcheck", "--endpoint", s.URL); code != exitFailed || !strings.Contains(errs, "503: no leader") {
		t.Errorf("ready: %d %q", code, errs)
	}
}

func TestBenchPrintsJSONAndTellsFailuresByItsStatus(t *testing.T) {
	puts := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			if puts++; puts == 3 {
				w.WriteHeader(503)
			}
		}
	}))
	defer s.Close()
	aws := []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_ENDPOINT_URL=" + s.URL}
	code, out, errs := run(t, aws, "bench", "--op", "put", "--size", "4KiB", "--concurrency", "1", "--duration", "100ms", "--json")
	var res map[string]any
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != exitAbsent || res["errors"] != 1.0 || res["ops"].(float64) < 1 || !strings.Contains(errs, "503") {
		t.Errorf("status %d, %v, %q, %q", code, err, out, errs)
	}
	for _, name := range []string{"ops", "bytes", "errors", "ops_per_s", "mib_per_s", "p50_ms", "p99_ms"} {
		if _, ok := res[name]; !ok {
			t.Errorf("no %q in %s", name, out)
		}
	}
	if code, out, _ := run(t, aws, "bench", "--op", "put", "--concurrency", "1", "--duration", "20ms", "--size", "0"); code != 0 || !strings.Contains(out, "ops/s") {
		t.Errorf("status %d, %q", code, out)
	}
}

func TestVersionAndConfigSpeakJSON(t *testing.T) {
	code, out, _ := run(t, nil, "version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v.Version == "" || v.Arch == "" {
		t.Errorf("version: %d %q", code, out)
	}
	if code, out, _ = run(t, nil, "version"); code != 0 || !strings.HasPrefix(out, "objstore ") {
		t.Errorf("version: %d %q", code, out)
	}
	code, out, _ = run(t, []string{"OBJ_SHARD_TLS=off"}, "config", "--json")
	var rows []config.Row
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil {
		t.Fatalf("config: %d %v", code, err)
	}
	for _, r := range rows {
		if r.Name == "OBJ_SHARD_TLS" && (r.Value != "off" || r.Default != "on") {
			t.Errorf("row %+v", r)
		}
	}
	if code, out, _ = run(t, []string{"OBJ_SHARD_TLS=off"}, "config"); code != 0 || !strings.Contains(out, "off *") {
		t.Errorf("config: %d %q", code, out)
	}
}

func TestADevFolderRemembersWhatItWasMadeWith(t *testing.T) {
	dir := t.TempDir()
	o := &devOptions{dir: dir}
	c, err := o.config(env{})
	if err != nil || c.Nodes != 4 || c.Drives != 1 || c.Host != "127.0.0.1" || c.BasePort != 9000 {
		t.Fatalf("%+v, %v", c, err)
	}
	writeFile(t, filepath.Join(dir, "layout.json"), map[string]any{"nodes": 6, "drives": 2, "host": "127.0.0.2", "base_port": 9500})
	if c, err = o.config(env{}); err != nil || c.Nodes != 6 || c.Drives != 2 || c.Host != "127.0.0.2" || c.BasePort != 9500 {
		t.Errorf("%+v, %v", c, err)
	}
	o.nodes = 4
	if _, err = o.config(env{}); err == nil || !strings.Contains(err.Error(), "6 nodes") {
		t.Errorf("four of six: %v", err)
	}
}

func TestTheGreetingCanBePasted(t *testing.T) {
	var out bytes.Buffer
	greet(env{out: &out}, "dev-data", &devcluster.State{AccessKey: "AK", SecretKey: "SK", Region: "us-east-1", Nodes: []devcluster.NodeState{{Name: "n1", S3: "http://127.0.0.1:9000"}}})
	for _, line := range []string{"export AWS_ACCESS_KEY_ID=AK", "export AWS_SECRET_ACCESS_KEY=SK", "export AWS_ENDPOINT_URL=http://127.0.0.1:9000", "dev kill n2 --dir dev-data"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in %s", line, out.String())
		}
	}
	if strings.Contains(out.String(), "%!") {
		t.Errorf("broken format: %s", out.String())
	}
}
