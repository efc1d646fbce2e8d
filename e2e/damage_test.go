package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// shardInfo is one shard of `admin object --json`.
type shardInfo struct {
	Part   int    `json:"part"`
	Blob   string `json:"blob"`
	Index  int    `json:"index"`
	Node   string `json:"node"`
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	State  string `json:"state"`
}

func (c *cluster) shards(bucket, key string) ([]shardInfo, error) {
	var o struct {
		Shards []shardInfo `json:"shards"`
	}
	out, err := c.try("admin", "object", bucket+"/"+key, "--json", "--dir", c.dir)
	if err == nil {
		err = json.Unmarshal(out, &o)
	}
	if err == nil && len(o.Shards) == 0 {
		err = fmt.Errorf("admin object %s/%s: no shards", bucket, key)
	}
	return o.Shards, err
}

// allOK asks once for the state of an object's shards.
func (c *cluster) allOK(bucket, key string) error {
	shards, err := c.shards(bucket, key)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range shards {
		if s.State != "ok" {
			errs = append(errs, fmt.Errorf("%s/%s: part %d shard %d on %s is %s, expected ok", bucket, key, s.Part, s.Index, s.Node, s.State))
		}
	}
	return errors.Join(errs...)
}

// headerBytes is the size of the header before a shard's cells, in a file as in a segment (docs/formats/shard.md).
const headerBytes = 4096

// damage does something to a shard on its drive.
type damage struct {
	name string
	do   func(s shardInfo) error
}

func damages() map[string]damage {
	list := []damage{
		{"cell", func(s shardInfo) error { return flip(s.Path, s.Offset+headerBytes+(s.Length-headerBytes)/3) }},
		{"header", func(s shardInfo) error { return flip(s.Path, s.Offset+100) }},
		{"footer", func(s shardInfo) error { return flip(s.Path, s.Offset+s.Length-headerBytes+100) }},
		{"truncated", func(s shardInfo) error { return os.Truncate(s.Path, s.Length/2) }},
		{"deleted", func(s shardInfo) error { return os.Remove(s.Path) }},
	}
	m := map[string]damage{}
	for _, d := range list {
		m[d.name] = d
	}
	return m
}

// flip inverts one byte of a file.
func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	if err == nil {
		b[0] ^= 0xff
		_, err = f.WriteAt(b[:], at)
	}
	return errors.Join(err, f.Close())
}

// victim is an object one of whose shards is damaged.
type victim struct {
	key   string
	size  int
	index int // of the shard: 0 is data and read by every GET, 3 parity and read by none
	damage
	digest
}

func victims() (list []victim) {
	d := damages()
	for _, of := range []struct {
		size int
		what []string
	}{
		{100 << 10, []string{"cell", "header"}}, // records in a segment
		{1 << 20, []string{"cell", "header"}},
		{8 << 20, []string{"cell", "header", "footer", "truncated", "deleted"}}, // files
		{20 << 20, []string{"cell", "footer", "truncated"}},
	} {
		for _, what := range of.what {
			for _, index := range []int{0, 3} {
				list = append(list, victim{key: fmt.Sprintf("%dKiB-%s-%d", of.size>>10, what, index), size: of.size, index: index, damage: d[what]})
			}
		}
	}
	return list
}

// TestDamagedShardsReadRightAndHealByThemselves damages one shard of each of many objects. Each object reads back right
// at once, and the background check alone finds and repairs them all: nobody looks at their state meanwhile.
func TestDamagedShardsReadRightAndHealByThemselves(t *testing.T) {
	c := startCluster(t, options{env: []string{"OBJ_VERIFY_INTERVAL=2s", "OBJ_VERIFY_RATE_BYTES=1GiB", "OBJ_GARBAGE_GRACE=1s"}})
	s, cl, list := seed(t), c.sdk(c.node("n1"), 5), victims()
	createBucket(t, cl, "damage")
	for i := range list {
		v := &list[i]
		body := randomBytes(s, uint64(i), v.size)
		v.digest = digestBytes(body)
		if err := putObject(t, cl, "damage", v.key, body); err != nil {
			t.Fatal(err)
		}
	}
	shards := 4 * len(list)
	c.waitRepaired(60 * time.Second) // shards that came late on a slow machine
	for _, v := range list {
		if err := c.allOK("damage", v.key); err != nil {
			t.Fatalf("before any damage: %v", err)
		}
	}
	for i, v := range list {
		c.hurt(t, "damage", v)
		for j := range 2 { // by two nodes
			if err := readBack(t, c.sdk(c.Nodes[(i+j)%4], 5), "damage", v.key, v.digest); err != nil {
				t.Errorf("with a damaged shard: %v", err)
			}
		}
	}
	c.waitVerified(t, shards, 3*time.Minute)
	for _, v := range list {
		if err := c.allOK("damage", v.key); err != nil {
			t.Errorf("not repaired without help: %v", err)
		}
		if err := readBack(t, cl, "damage", v.key, v.digest); err != nil {
			t.Errorf("after the repair: %v", err)
		}
	}
}

func (c *cluster) hurt(t *testing.T, bucket string, v victim) {
	t.Helper()
	shards, err := c.shards(bucket, v.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		if s.Index == v.index {
			if err := v.do(s); err != nil {
				t.Fatalf("%s: %v", v.key, err)
			}
			return
		}
	}
	t.Fatalf("%s has no shard %d", v.key, v.index)
}

// waitVerified waits until nothing is left to repair and two whole passes of the background check over so many shards
// found nothing more.
func (c *cluster) waitVerified(t *testing.T, shards int, limit time.Duration) {
	t.Helper()
	bad, from := -1.0, 0.0
	poll(t, time.Now().Add(limit), "two clean passes of the background check", func() error {
		nowBad, err := c.metric("objstore_repair_bad_shards_total")
		if err != nil {
			return err
		}
		verified, err := c.metric("objstore_repair_verified_shards_total")
		if err != nil {
			return err
		}
		info, err := c.repair()
		if err != nil {
			return err
		}
		if nowBad != bad || info.Repair.Pending != 0 {
			bad, from = nowBad, verified
		}
		// Each group has its own pass; three times the shards are two passes of the slowest group at the least.
		if verified-from < float64(3*shards) {
			return fmt.Errorf("repair.pending is %d, %v shards checked since the last bad one, %v found bad", info.Repair.Pending, verified-from, bad)
		}
		return nil
	})
	if bad == 0 {
		t.Error("the background check found no bad shard")
	}
	t.Logf("%v bad shards found, %v checked", bad, from)
}

// TestRepairIsDoneSoonAfterANodeIsBack writes while a node is dead and expects its shards within 60 s of its return.
func TestRepairIsDoneSoonAfterANodeIsBack(t *testing.T) {
	c := startCluster(t, options{})
	s, cl := seed(t), c.sdk(c.node("n1"), 5)
	createBucket(t, cl, "back")
	c.kill("n3")
	want := map[string]digest{}
	for i := range 60 {
		key, body := fmt.Sprintf("o%d", i), randomBytes(s, uint64(i), []int{20 << 10, 200 << 10, 3 << 20}[i%3])
		if err := putObject(t, cl, "back", key, body); err != nil {
			t.Fatalf("put with n3 dead: %v", err)
		}
		want[key] = digestBytes(body)
	}
	poll(t, time.Now().Add(30*time.Second), "repair.pending to show what n3 lacks", func() error {
		info, err := c.repair()
		if err == nil && info.Repair.Pending == 0 {
			err = errors.New("repair.pending is 0")
		}
		return err
	})
	c.startNode("n3")
	begin := time.Now()
	c.waitRepaired(60 * time.Second)
	t.Logf("repaired %s after n3 was back", time.Since(begin).Round(time.Millisecond))
	c.kill("n1") // two of four shards, n3's among them, must do
	for key, d := range want {
		if err := readBack(t, c.sdk(c.node("n3"), 5), "back", key, d); err != nil {
			t.Error(err)
		}
	}
	c.startNode("n1")
	for _, key := range []string{"o0", "o1", "o2", "o58", "o59"} {
		poll(t, time.Now().Add(30*time.Second), "the shards of "+key, func() error { return c.allOK("back", key) })
	}
}
