package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestASyncSurvivesANodeThatIsKilledHalfWay is the main job: a large tree goes in while a node dies, everything reads
// back right with that node still dead, is repaired when it is back, and reads back right again with another one dead.
func TestASyncSurvivesANodeThatIsKilledHalfWay(t *testing.T) {
	need(t, "rclone", "rclone")
	tree := runtime.GOROOT()
	c := startCluster(t, options{})
	conf := c.rcloneConfig(t)
	sync := exec.Command("rclone", "--config", conf, "sync", tree, "s:gotree", "--transfers", "8", "--checkers", "16", "--stats", "10s",
		"--stats-one-line", "--stats-log-level", "NOTICE")
	sync.Env = cleanEnv()
	var log bytes.Buffer
	sync.Stdout, sync.Stderr = &log, &log
	begin := time.Now()
	if err := sync.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- sync.Wait() }()
	half := countFiles(t, tree) / 2
	poll(t, time.Now().Add(5*time.Minute), fmt.Sprintf("%d objects", half), func() error {
		select {
		case err := <-done:
			done <- err
			return nil
		default:
		}
		if n := transferred(log.Bytes()); n < half {
			return fmt.Errorf("%d objects are there", n)
		}
		return nil
	})
	c.kill("n3")
	t.Logf("n3 killed after %s", time.Since(begin).Round(time.Second))
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("rclone sync: %v\n%s", err, tail(log.Bytes(), 4000))
		}
	case <-time.After(6 * time.Minute):
		sync.Process.Kill()
		t.Fatalf("rclone sync did not end\n%s", tail(log.Bytes(), 4000))
	}
	t.Logf("sync ended after %s", time.Since(begin).Round(time.Second))
	c.rcloneCheck(t, conf, tree)
	c.startNode("n3")
	back := time.Now()
	c.waitRepaired(60 * time.Second)
	t.Logf("repaired %s after n3 was back", time.Since(back).Round(time.Second))
	c.kill("n2")
	c.rcloneCheck(t, conf, tree)
}

func (c *cluster) rcloneCheck(t *testing.T, conf, tree string) {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "rclone", "--config", conf, "check", "--download", tree, "s:gotree", "--checkers", "8", "--one-way")
	cmd.Env = cleanEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("rclone check: %v\n%s", err, tail(out, 4000))
	}
	if !bytes.Contains(out, []byte("0 differences found")) {
		t.Fatalf("rclone check did not say that nothing differs:\n%s", tail(out, 2000))
	}
	t.Logf("check took %s", time.Since(begin).Round(time.Second))
}

// rcloneConfig writes a configuration whose remote "s" is the first node.
func (c *cluster) rcloneConfig(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "rclone.conf")
	text := fmt.Sprintf("[s]\ntype = s3\nprovider = Other\naccess_key_id = %s\nsecret_access_key = %s\nendpoint = %s\nregion = %s\nforce_path_style = true\n",
		c.AccessKey, c.SecretKey, c.Nodes[0].S3, c.Region)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// transferred reads rclone's last line of statistics: "… (xfr#8479/15036)".
func transferred(log []byte) int {
	s := string(log)
	i := strings.LastIndex(s, "(xfr#")
	n := 0
	if i >= 0 {
		fmt.Sscanf(s[i:], "(xfr#%d/", &n)
	}
	return n
}

func countFiles(t *testing.T, dir string) int {
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// need fails when a program is missing: a test that quietly skips proves nothing.
func need(t *testing.T, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("OBJ_E2E_ALLOW_SKIP") == "1" {
			t.Skipf("%s is not installed (Debian package %s) and OBJ_E2E_ALLOW_SKIP=1", program, pkg)
		}
		t.Fatalf("%s is not installed: apt-get install %s, or set OBJ_E2E_ALLOW_SKIP=1", program, pkg)
	}
}
