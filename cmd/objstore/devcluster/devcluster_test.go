package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// freeBase finds a base port whose ports are all free now.
func freeBase(t *testing.T, nodes int) int {
	t.Helper()
	for base := 21000; base < 32000; base += portsPerNode * nodes {
		c := Config{Dir: "x", Nodes: nodes, Drives: 1, Host: "127.0.0.1", BasePort: base}
		free := true
		for i := 1; i <= nodes && free; i++ {
			s := c.spec(i)
			free = s.checkPorts() == nil
		}
		if free {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// running is a cluster in the background.
type running struct {
	cfg  Config
	out  *buffer
	stop func() error
	done chan error
}

func config(t *testing.T, dir string, env ...string) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Dir: dir, Nodes: 3, Drives: 2, Host: "127.0.0.1", BasePort: freeBase(t, 3), Region: "us-east-1", Exec: exe, Env: append(os.Environ(), env...)}
}

func up(t *testing.T, cfg Config) *running {
	t.Helper()
	r := &running{cfg: cfg, out: &buffer{}, done: make(chan error, 1)}
	r.cfg.Out = r.out
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{})
	go func() { r.done <- Run(ctx, r.cfg, func(*State) { close(ready) }) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-r.done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		goleak.VerifyNone(t)
	})
	select {
	case <-ready:
	case err := <-r.done:
		r.done <- err
		t.Fatalf("not ready: %v\n%s", err, r.out)
	case <-time.After(30 * time.Second):
		t.Fatal("not ready after 30 s")
	}
	return r
}

func state(t *testing.T, dir string) *State {
	t.Helper()
	s, err := ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func get(url string) (string, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestAClusterComesUpStopsAndContinues(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30)) // the socket's path must not depend on its length
	cfg := config(t, dir)
	r := up(t, cfg)
	s := state(t, dir)
	if len(s.Nodes) != 3 || s.Region != "us-east-1" || s.AccessKey == "" || len(s.SecretKey) < 30 {
		t.Fatalf("state %+v", s)
	}
	for i, n := range s.Nodes {
		if body, err := get(n.S3 + "/"); err != nil || body != n.Name {
			t.Errorf("%s: %q, %v", n.Name, body, err)
		}
		if len(n.Data) != 2 || !filepath.IsAbs(n.Data[0]) || n.PID == 0 || n.Name != []string{"n1", "n2", "n3"}[i] || strings.Contains(n.Internode, "/") {
			t.Errorf("node %+v", n)
		}
	}
	how, err := os.ReadFile(filepath.Join(s.Nodes[0].Data[0], identityFile))
	if err != nil || string(how) != "founded by n1, expects 3" {
		t.Errorf("n1 was %q, %v", how, err)
	}
	var joined []string
	for _, n := range s.Nodes[1:] {
		how, err := os.ReadFile(filepath.Join(n.Data[0], identityFile))
		if err != nil || !strings.HasPrefix(string(how), "joined "+s.Nodes[0].Internode+" with token-") || slices.Contains(joined, string(how)) {
			t.Errorf("%s was %q, %v", n.Name, how, err)
		}
		joined = append(joined, string(how))
	}
	for _, name := range []string{stateFile, socketFile, credentialFile} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dev.json after the stop: %v", err)
	}
	for _, n := range s.Nodes {
		if !gone(n.PID) {
			t.Errorf("%s (pid %d) is still there", n.Name, n.PID)
		}
	}
	again := up(t, cfg) // the fake refuses to be founded or joined twice
	if s2 := state(t, dir); s2.SecretKey != s.SecretKey || s2.Nodes[0].PID == s.Nodes[0].PID {
		t.Errorf("second run %+v", s2)
	}
	again.stop()
}

func TestOneNodeIsKilledAndStarted(t *testing.T) {
	dir := t.TempDir()
	r := up(t, config(t, dir))
	ctx := context.Background()
	before := state(t, dir).Nodes[1].PID
	pid, err := Kill(ctx, dir, "n2")
	if err != nil || pid != before || !gone(pid) {
		t.Fatalf("kill: pid %d of %d, gone %v, %v", pid, before, gone(pid), err)
	}
	if _, err := Kill(ctx, dir, "n2"); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("second kill: %v", err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for !strings.Contains(r.out.String(), "n2 (pid") && time.Now().Before(deadline) {
		pause(ctx, 5*time.Millisecond)
	}
	if !strings.Contains(r.out.String(), "objstore dev start n2") {
		t.Errorf("said %q", r.out)
	}
	pid, err = Start(ctx, dir, "n2")
	if err != nil || pid == before || state(t, dir).Nodes[1].PID != pid {
		t.Errorf("start: pid %d, %v", pid, err)
	}
	if body, err := get(state(t, dir).Nodes[1].S3); err != nil || body != "n2" {
		t.Errorf("after start: %q, %v", body, err)
	}
	if _, err := Start(ctx, dir, "n2"); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("second start: %v", err)
	}
	if _, err := Start(ctx, dir, "n9"); err == nil || !strings.Contains(err.Error(), `"n9"`) {
		t.Errorf("start of n9: %v", err)
	}
	syscall.Kill(pid, syscall.SIGKILL) // from outside, and started before anybody could have noticed
	if again, err := Start(ctx, dir, "n2"); err != nil || again == pid {
		t.Errorf("start after a kill from outside: pid %d, %v", again, err)
	}
}

func TestAPausedAndAStubbornNodeDoNotHoldUpTheStop(t *testing.T) {
	dir := t.TempDir()
	r := up(t, config(t, dir, "FAKE_STUBBORN=n3"))
	s := state(t, dir)
	syscall.Kill(s.Nodes[1].PID, syscall.SIGSTOP)
	began := time.Now()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	for _, n := range s.Nodes {
		if !gone(n.PID) {
			t.Errorf("%s is still there", n.Name)
		}
	}
	if !strings.Contains(r.out.String(), "n3 did not stop") || strings.Contains(r.out.String(), "n2 did not stop") {
		t.Errorf("said %q", r.out)
	}
}

func TestAFailingNodeEndsTheStartWithItsLog(t *testing.T) {
	dir := t.TempDir()
	cfg := config(t, dir, "FAKE_FAIL=n2")
	cfg.Out = &buffer{}
	os.WriteFile(filepath.Join(dir, stateFile), []byte("{}"), 0o600) // left by a crash
	err := Run(context.Background(), cfg, nil)
	if err == nil || !strings.Contains(err.Error(), "n2 fails as it was told to") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dev.json: %v", err)
	}
	cfg.Env = os.Environ() // n1 is a member already, n2 and n3 are not: the next start goes on from there
	up(t, cfg)
}

func TestAnUnreadyNodeIsNotWrittenAsReady(t *testing.T) {
	dir := t.TempDir()
	cfg := config(t, dir, "FAKE_UNREADY=n3")
	cfg.Out = &buffer{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg, func(*State) { t.Error("ready was called") }) }()
	deadline := time.Now().Add(10 * time.Second)
	for _, err := os.Stat(filepath.Join(dir, "n3", "d1", identityFile)); err != nil && time.Now().Before(deadline); _, err = os.Stat(filepath.Join(dir, "n3", "d1", identityFile)) {
		pause(ctx, 10*time.Millisecond)
	}
	if _, err := ReadState(dir); err == nil {
		t.Error("dev.json is there")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("stopped while it came up: %v", err)
	}
}

func TestAFolderAndItsPortsBelongToOneCluster(t *testing.T) {
	dir := t.TempDir()
	r := up(t, config(t, dir))
	if err := Run(context.Background(), r.cfg, nil); err == nil || !strings.Contains(err.Error(), "another objstore dev") {
		t.Errorf("second cluster in the folder: %v", err)
	}
	other := r.cfg
	other.Dir = t.TempDir()
	err := Run(context.Background(), other, nil)
	if err == nil || !strings.Contains(err.Error(), "s3 of n1 wants 127.0.0.1:") || !strings.Contains(err.Error(), "--base-port") {
		t.Errorf("second cluster on the ports: %v", err)
	}
	remembered := Config{}
	if err := Remember(dir, &remembered); err != nil || remembered.Nodes != 3 || remembered.Drives != 2 || remembered.BasePort != r.cfg.BasePort || remembered.Host != "127.0.0.1" {
		t.Errorf("remembered %+v, %v", remembered, err)
	}
	if err := Remember(dir, &Config{Nodes: 4}); err == nil || !strings.Contains(err.Error(), "3 nodes") {
		t.Errorf("four nodes of three: %v", err)
	}
	if err := Remember(t.TempDir(), &Config{}); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestTheSocketAnswersGarbageWithAnError(t *testing.T) {
	dir := t.TempDir()
	up(t, config(t, dir))
	for _, line := range []string{"garbage\n", `{"op":"explode","node":"n1"}` + "\n", strings.Repeat("x", 2*maxControlLine)} {
		conn, err := net.Dial("unix", filepath.Join(dir, socketFile))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, line)
		var a reply
		if err := json.NewDecoder(conn).Decode(&a); err != nil || a.Error == "" {
			t.Errorf("%.20q: %+v, %v", line, a, err)
		}
		conn.Close()
	}
	if _, err := Kill(context.Background(), t.TempDir(), "n1"); err == nil || !strings.Contains(err.Error(), "no dev cluster is running") {
		t.Errorf("kill in an empty folder: %v", err)
	}
}

func TestEveryProblemOfAConfigurationIsNamed(t *testing.T) {
	err := (&Config{Nodes: 99, Host: "localhost", BasePort: 65530}).Validate()
	for _, w := range []string{"dir:", "nodes: read 99", "drives: read 0", `"localhost"`, "base-port: read 65530"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v does not say %s", err, w)
		}
	}
}
