package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is built once for the whole package, with the race detector when OBJ_E2E_RACE is set.
var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "objstore-e2e-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "objstore")
	args := []string{"build", "-o", bin}
	if os.Getenv("OBJ_E2E_RACE") != "" {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "objstore/cmd/objstore")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := buildOnce(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// node is one entry of dev.json.
type node struct {
	Name      string   `json:"name"`
	PID       int      `json:"pid"`
	S3        string   `json:"s3"`
	Admin     string   `json:"admin"`
	Internode string   `json:"internode"`
	Data      []string `json:"data"`
}

// devFile is dev.json.
type devFile struct {
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	Region    string `json:"region"`
	Nodes     []node `json:"nodes"`
}

// cluster is a running `objstore dev`.
type cluster struct {
	t    *testing.T
	dir  string
	bin  string
	env  []string
	args []string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	exit chan error
	devFile
}

// options of a test cluster.
type options struct {
	dir  string   // default: a temporary folder
	env  []string // OBJ_* settings
	args []string // more flags for dev
}

// startCluster starts four nodes and waits until they are ready. The cluster is stopped when the test ends, and its logs
// are shown when the test failed.
func startCluster(t *testing.T, o options) *cluster {
	t.Helper()
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	c := &cluster{t: t, dir: o.dir, bin: bin, env: o.env,
		args: append([]string{"dev", "--dir", o.dir, "--base-port", fmt.Sprint(freeBasePort(t))}, o.args...)}
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			c.dumpLogs()
		}
	})
	c.start()
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	c.log = &bytes.Buffer{}
	c.cmd = exec.Command(c.bin, c.args...)
	c.cmd.Env = append(cleanEnv(), c.env...)
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.exit = make(chan error, 1)
	go func(cmd *exec.Cmd, exit chan error) { exit <- cmd.Wait() }(c.cmd, c.exit)
	deadline := time.Now().Add(90 * time.Second)
	poll(c.t, deadline, "dev.json", func() error {
		select {
		case err := <-c.exit:
			c.exit <- err
			c.t.Fatalf("objstore dev ended: %v\n%s", err, c.log)
		default:
		}
		return c.readDev()
	})
}

func (c *cluster) readDev() error {
	b, err := os.ReadFile(filepath.Join(c.dir, "dev.json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &c.devFile)
}

// stop ends the cluster with SIGTERM and checks that it takes at most 10 s and leaves no dev.json.
func (c *cluster) stop() {
	if c.cmd == nil {
		return
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exit:
	case <-time.After(12 * time.Second):
		c.t.Errorf("objstore dev did not stop within 10 s of SIGTERM")
		c.cmd.Process.Kill()
		<-c.exit
	}
	c.cmd = nil
	if _, err := os.Stat(filepath.Join(c.dir, "dev.json")); err == nil {
		c.t.Errorf("dev.json is still there after the stop")
	}
}

// run runs an objstore command and returns its standard output.
func (c *cluster) run(args ...string) []byte {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *cluster) try(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.bin, args...)
	cmd.Env = cleanEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("objstore %v: %w\n%s%s", args, err, out, stderr.Bytes())
	}
	return out, nil
}

func (c *cluster) kill(name string) { c.run("dev", "kill", name, "--dir", c.dir) }

func (c *cluster) startNode(name string) {
	c.run("dev", "start", name, "--dir", c.dir)
	if err := c.readDev(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) node(name string) node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	c.t.Fatalf("no node %s in dev.json", name)
	return node{}
}

// repairInfo is the part of `admin info --json` that the tests wait for.
type repairInfo struct {
	Repair struct {
		Pending int64 `json:"pending"`
		Lost    int64 `json:"lost"`
	} `json:"repair"`
}

func (c *cluster) repair() (repairInfo, error) {
	var info repairInfo
	out, err := c.try("admin", "info", "--json", "--dir", c.dir)
	if err == nil {
		err = json.Unmarshal(out, &info)
	}
	return info, err
}

func (c *cluster) waitRepaired(limit time.Duration) {
	c.t.Helper()
	poll(c.t, time.Now().Add(limit), "repair.pending to be 0", func() error {
		info, err := c.repair()
		if err == nil && info.Repair.Pending != 0 {
			err = fmt.Errorf("repair.pending is %d", info.Repair.Pending)
		}
		return err
	})
}

func (c *cluster) dumpLogs() {
	c.t.Logf("objstore dev:\n%s", tail(c.log.Bytes(), 4000))
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*", "log"))
	for _, l := range logs {
		b, _ := os.ReadFile(l)
		c.t.Logf("%s:\n%s", l, tail(b, 6000))
	}
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// poll calls f until it succeeds or the deadline has passed.
func poll(t *testing.T, deadline time.Time, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		<-tick.C
	}
}

// cleanEnv is the environment without what would point clients or servers elsewhere.
func cleanEnv() []string {
	var out []string
	for _, kv := range os.Environ() {
		if len(kv) > 4 && (kv[:4] == "AWS_" || kv[:4] == "OBJ_") {
			continue
		}
		out = append(out, kv)
	}
	return out
}

// freeBasePort finds a base port whose next 40 ports are free on loopback.
func freeBasePort(t *testing.T) int {
	for base := 21000 + os.Getpid()%200*50; base < 60000; base += 50 {
		if portsFree(base) {
			return base
		}
	}
	t.Fatal("no free port range")
	return 0
}

func portsFree(base int) bool {
	for p := base; p < base+40; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
