package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestANodeStartsWithADriveThatCannotBeOpened: the drive is fenced, the cluster hears of it, and everything goes on.
func TestANodeStartsWithADriveThatCannotBeOpened(t *testing.T) {
	const bucket = "fence"
	c := startCluster(t, options{args: []string{"--drives", "2"}})
	rc := newRawClient(c, 30*time.Second)
	defer rc.close()
	makeRawBucket(t, rc, c.Nodes[0].S3, bucket)
	want := map[string][]byte{}
	put := func(key string, size int) {
		t.Helper()
		want[key] = rawBody(key, size)
		if a, err := rc.do(context.Background(), c.Nodes[0].S3, "PUT", bucket, key, "", want[key]); err != nil || a.status != 200 {
			t.Fatalf("put %s: %d, %v: %s", key, a.status, err, a.body)
		}
	}
	for i := range 20 {
		put(fmt.Sprintf("before-%d", i), 20<<10*(i+1))
	}
	bad := c.node("n2").Data[1]
	c.kill("n2")
	if err := os.Truncate(filepath.Join(bad, "shardstore"), 0); err != nil { // as a file system leaves it that lost its log
		t.Fatal(err)
	}
	c.startNode("n2")
	poll(t, time.Now().Add(60*time.Second), bad+" to be fenced", func() error {
		out, err := c.try("admin", "info", "--json", "--dir", c.dir)
		if err != nil {
			return err
		}
		var info struct {
			Drives []struct{ Path, State string } `json:"drives"`
		}
		if err := json.Unmarshal(out, &info); err != nil {
			return err
		}
		for _, d := range info.Drives {
			if d.Path == bad && d.State == "fenced" {
				return nil
			}
		}
		return fmt.Errorf("drives %v", info.Drives)
	})
	for i := range 20 {
		put(fmt.Sprintf("after-%d", i), 20<<10*(i+1))
	}
	for key, body := range want {
		a, err := rc.do(context.Background(), c.node("n2").S3, "GET", bucket, key, "", nil)
		if err != nil || a.status != 200 || string(a.body) != string(body) {
			t.Errorf("%s: status %d, %d of %d bytes, %v", key, a.status, len(a.body), len(body), err)
		}
	}
}
