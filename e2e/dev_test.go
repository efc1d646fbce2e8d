package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDevJSONSaysWhereReadyNodesAre reads dev.json strictly: programs depend on each name in it.
func TestDevJSONSaysWhereReadyNodesAre(t *testing.T) {
	c := startCluster(t, options{})
	b, err := os.ReadFile(filepath.Join(c.dir, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f devFile
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		t.Fatalf("dev.json: %v\n%s", err, b)
	}
	if f.AccessKey == "" || f.SecretKey == "" || f.Region != "us-east-1" || len(f.Nodes) != 4 {
		t.Fatalf("dev.json: expected credentials, region us-east-1 and 4 nodes:\n%s", b)
	}
	pids := map[int]bool{c.cmd.Process.Pid: true}
	for i, n := range f.Nodes {
		if want := fmt.Sprintf("n%d", i+1); n.Name != want {
			t.Errorf("node %d: read name %q, expected %q", i, n.Name, want)
		}
		if pids[n.PID] || !running(n.PID) {
			t.Errorf("%s: read pid %d, expected a process of its own", n.Name, n.PID)
		}
		pids[n.PID] = true
		for _, url := range []string{n.S3, n.Admin} {
			if !strings.HasPrefix(url, "http://127.0.0.1:") || strings.HasSuffix(url, "/") {
				t.Errorf("%s: read %q, expected http://IP:PORT", n.Name, url)
			}
		}
		if strings.Contains(n.Internode, "/") || n.Internode == "" {
			t.Errorf("%s: internode: read %q, expected IP:PORT", n.Name, n.Internode)
		}
		if len(n.Data) != 1 || !filepath.IsAbs(n.Data[0]) {
			t.Errorf("%s: read data %q, expected one absolute path", n.Name, n.Data)
		}
		if err := ready(n); err != nil {
			t.Errorf("dev.json is there, but %v", err)
		}
	}
}

// TestDevKillsAndStartsOneNode: a killed node stays dead until it is started, and dev.json follows.
func TestDevKillsAndStartsOneNode(t *testing.T) {
	c := startCluster(t, options{})
	s, cl := seed(t), c.sdk(c.node("n1"), 5)
	createBucket(t, cl, "drill")
	old := c.node("n2").PID
	c.kill("n2")
	if running(old) {
		t.Errorf("process %d of n2 is alive after dev kill", old)
	}
	if out, err := c.try("dev", "kill", "n2", "--dir", c.dir); err == nil {
		t.Errorf("a dead node was killed again: %s", out)
	}
	if out, err := c.try("dev", "kill", "n9", "--dir", c.dir); err == nil || !strings.Contains(err.Error(), "n9") {
		t.Errorf("no node is called n9, but kill said %q and %v", out, err)
	}
	if out, err := c.try("dev", "start", "n1", "--dir", c.dir); err == nil {
		t.Errorf("a running node was started again: %s", out)
	}
	bodies := map[string][]byte{}
	for i := range 20 { // writes and reads go on, and take long enough for a restart to show
		key, body := fmt.Sprintf("o%d", i), randomBytes(s, uint64(i), 1000<<(i%9))
		if err := putObject(t, cl, "drill", key, body); err != nil {
			t.Fatalf("put with n2 dead: %v", err)
		}
		bodies[key] = body
	}
	if err := ready(c.node("n2")); err == nil {
		t.Error("n2 was started by itself")
	}
	c.startNode("n2")
	n2 := c.node("n2")
	if n2.PID == old || !running(n2.PID) {
		t.Errorf("n2 has pid %d in dev.json after its start, which was %d before", n2.PID, old)
	}
	if err := ready(n2); err != nil {
		t.Errorf("dev start returned, but %v", err)
	}
	for key, body := range bodies {
		if err := readBack(t, c.sdk(n2, 5), "drill", key, digestBytes(body)); err != nil {
			t.Errorf("from n2: %v", err)
		}
	}
}

// TestDevContinuesWithItsData stops a cluster, one node of which is frozen, within 10 s, and finds everything again.
func TestDevContinuesWithItsData(t *testing.T) {
	c := startCluster(t, options{})
	s, cl := seed(t), c.sdk(c.node("n1"), 5)
	createBucket(t, cl, "kept")
	want := map[string]digest{}
	for i, size := range []int{0, 1, 5000, 100 << 10, 1 << 20, 5<<20 + 7} {
		key, body := fmt.Sprintf("size/%d", size), randomBytes(s, uint64(i), size)
		if err := putObject(t, cl, "kept", key, body); err != nil {
			t.Fatal(err)
		}
		want[key] = digestBytes(body)
	}
	if out, err := c.try("dev", "--dir", c.dir); err == nil {
		t.Errorf("a second dev ran on the same folder: %s", out)
	}
	before := c.devFile
	frozen := c.node("n4").PID
	if err := syscall.Kill(frozen, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	c.stop()
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("the stop took %s, expected at most 10 s", d.Round(time.Millisecond))
	}
	for _, n := range before.Nodes {
		if running(n.PID) {
			t.Errorf("%s: process %d outlived dev", n.Name, n.PID)
		}
	}
	c.start()
	if c.AccessKey != before.AccessKey || c.SecretKey != before.SecretKey {
		t.Error("the credentials changed")
	}
	if !slices.EqualFunc(c.Nodes, before.Nodes, func(a, b node) bool { return a.Name == b.Name && a.S3 == b.S3 && slices.Equal(a.Data, b.Data) }) {
		t.Errorf("the nodes changed: read %+v, expected %+v with other pids", c.Nodes, before.Nodes)
	}
	for i, n := range c.Nodes {
		for key, d := range want {
			if err := readBack(t, c.sdk(n, 5), "kept", key, d); err != nil {
				t.Errorf("node %d: %v", i+1, err)
			}
		}
	}
}

// running reports whether a process exists and is no zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, ok := bytes.Cut(b, []byte(") "))
	return ok && len(after) > 0 && after[0] != 'Z' && after[0] != 'X'
}

// ready asks a node's readiness once.
func ready(n node) error {
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Get(n.S3 + "/-/ready")
	if err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	if err := errors.Join(resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: ready: read status %d, expected 200", n.Name, resp.StatusCode)
	}
	return nil
}
