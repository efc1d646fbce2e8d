package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Size of the history. Few keys make the clients meet; the pace keeps a key's history within what can be checked.
const (
	linearBucket       = "linear"
	linearKeys         = 6
	linearClients      = 12
	linearPinned       = 8                     // clients that keep to one node each: were all to roam, all would soon hang on the one that is paused
	linearPace         = 50 * time.Millisecond // between two operations of one client, at least
	linearFor          = 75 * time.Second
	linearTimeout      = 20 * time.Second // of one request: longer than a gateway rides over an election
	linearPageKeys     = 4                // a listing of all keys takes two pages
	linearCheckTimeout = 90 * time.Second // of porcupine, all keys together
	outcomeUnknown     = math.MaxInt64    // when an operation with an unknown outcome returned: at the end
)

// linearRecorder collects the history.
type linearRecorder struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
	pages []linearPage
	count map[string]int
}

// linearPage is one page of a listing: what it shows of the keys in [from, to).
type linearPage struct {
	call, ret int64
	from, to  int
	seen      map[int]string
	via       string
}

func (r *linearRecorder) now() int64 { return int64(time.Since(r.began)) }

func (r *linearRecorder) add(client int, call, ret int64, i linearIn, o linearOut) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: i, Call: call, Output: o, Return: ret})
	r.count[fmt.Sprintf("%s %d", i.kind, o.status)]++
}

func (r *linearRecorder) tally(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[what]++
}

func linearKey(k int) string { return fmt.Sprintf("key-%d", k) }

// linearClient is one sequential client.
type linearClient struct {
	id        int
	rnd       *rand.Rand
	rc        *rawClient
	rec       *linearRecorder
	endpoints []string
	last      [linearKeys]string // the ETag it last saw of each key
	n         int
	problem   func(format string, args ...any)
}

func (c *linearClient) run(ctx context.Context) {
	tick := time.NewTicker(linearPace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.one()
		}
	}
}

// one does one operation. It runs to its end after the test's time is over, so that its outcome is known.
func (c *linearClient) one() {
	ctx := context.Background()
	endpoint := c.endpoints[c.id%len(c.endpoints)]
	if c.id >= linearPinned {
		endpoint = c.endpoints[c.rnd.IntN(len(c.endpoints))]
	}
	i := linearIn{key: c.rnd.IntN(linearKeys), via: endpoint}
	switch p := c.rnd.IntN(100); {
	case p < 15:
		c.list(ctx, endpoint)
		return
	case p < 45:
		c.get(ctx, endpoint, i, "GET")
		return
	case p < 50:
		c.get(ctx, endpoint, i, "HEAD")
		return
	case p < 65:
		i.kind = opPut
	case p < 75:
		i.kind = opPutIfAbsent
	case p < 87:
		i.kind, i.cond = opPutIfMatch, c.last[i.key]
	case p < 95:
		i.kind = opDelete
	default:
		i.kind, i.cond = opDeleteIfMatch, c.last[i.key]
	}
	if i.cond == "" { // nothing seen yet: an ETag that no body has
		i.cond = rawETag(nil)
	}
	c.write(ctx, endpoint, i)
}

func (c *linearClient) get(ctx context.Context, endpoint string, i linearIn, method string) {
	call := c.rec.now()
	a, err := c.rc.do(ctx, endpoint, method, linearBucket, linearKey(i.key), "", nil)
	ret := c.rec.now()
	switch {
	case err != nil || a.status >= 500:
		c.rec.tally("read without an answer")
		return
	case a.status == 404:
		a.etag = ""
	case a.status != 200:
		c.problem("%s of %s answered %d: %s", method, linearKey(i.key), a.status, a.body)
		return
	case method == "GET" && rawETag(a.body) != a.etag:
		c.problem("GET of %s via %s: the body of %d bytes has MD5 %s and ETag %s", linearKey(i.key), endpoint, len(a.body), rawETag(a.body), a.etag)
		return
	}
	c.last[i.key] = a.etag
	c.rec.add(c.id, call, ret, i, linearOut{a.status, a.etag})
}

func (c *linearClient) write(ctx context.Context, endpoint string, i linearIn) {
	method, header := "DELETE", []string{}
	var body []byte
	switch i.kind {
	case opPut, opPutIfAbsent, opPutIfMatch:
		method = "PUT"
		c.n++
		size := 200
		if c.rnd.IntN(3) == 0 {
			size = 16<<10 + c.rnd.IntN(100<<10) // not inline
		}
		body = rawBody(fmt.Sprintf("c%d-%d", c.id, c.n), size)
		i.etag = rawETag(body)
	}
	switch i.kind {
	case opPutIfAbsent:
		header = []string{"If-None-Match", "*"}
	case opPutIfMatch, opDeleteIfMatch:
		header = []string{"If-Match", `"` + i.cond + `"`}
	}
	call := c.rec.now()
	a, err := c.rc.do(ctx, endpoint, method, linearBucket, linearKey(i.key), "", body, header...)
	ret := c.rec.now()
	switch {
	case errors.Is(err, errNotSent):
		c.rec.tally("write not sent")
	case err != nil && a.status == 0 || a.status >= 500:
		c.rec.add(c.id, call, outcomeUnknown, i, linearOut{})
	case a.status == 200 && method == "PUT":
		if a.etag != i.etag {
			c.problem("PUT of %s answered ETag %q, expected %q", linearKey(i.key), a.etag, i.etag)
		}
		c.last[i.key] = i.etag
		c.rec.add(c.id, call, ret, i, linearOut{status: a.status})
	default:
		c.rec.add(c.id, call, ret, i, linearOut{status: a.status})
	}
}

// list reads all keys page by page. Each page shows, of each key in its window, one moment between its call and its
// return; several pages are not one moment.
func (c *linearClient) list(ctx context.Context, endpoint string) {
	after, from := "", 0
	for range linearKeys + 1 {
		call := c.rec.now()
		a, p, err := c.rc.list(ctx, endpoint, linearBucket, after, linearPageKeys)
		ret := c.rec.now()
		if err != nil || a.status >= 500 {
			c.rec.tally("list without an answer")
			return
		}
		if a.status != 200 {
			c.problem("LIST answered %d: %s", a.status, a.body)
			return
		}
		pg := linearPage{call: call, ret: ret, from: from, to: linearKeys, seen: map[int]string{}, via: endpoint}
		for _, o := range p.Contents {
			k, err := strconv.Atoi(o.Key[len("key-"):])
			if err != nil || o.Key != linearKey(k) || o.Key <= after {
				c.problem("LIST after %q shows %q", after, o.Key)
				return
			}
			pg.seen[k], after = o.ETag, o.Key
			if p.IsTruncated {
				pg.to = k + 1
			}
		}
		c.rec.mu.Lock()
		c.rec.pages = append(c.rec.pages, pg)
		c.rec.mu.Unlock()
		for k := pg.from; k < pg.to; k++ {
			c.rec.add(c.id, call, ret, linearIn{kind: opGet, key: k, via: "list " + endpoint}, linearOut{200, pg.seen[k]})
		}
		if !p.IsTruncated {
			return
		}
		from = pg.to
	}
	c.problem("LIST of %d keys does not end", linearKeys)
}

// TestHistoriesAreLinearizableWhileNodesDieAndStall runs clients on few keys over all nodes while one node after the
// other is killed, paused or restarted, and checks the history.
func TestHistoriesAreLinearizableWhileNodesDieAndStall(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("OBJ_E2E_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("OBJ_E2E_SEED=%d", seed)
	c := startCluster(t, options{env: []string{"OBJ_META_GROUPS=1"}}) // one leader, which faults can aim at
	rc := newRawClient(c, linearTimeout)
	defer rc.close()
	endpoints := make([]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		endpoints = append(endpoints, n.S3)
	}
	makeRawBucket(t, rc, endpoints[0], linearBucket)
	t.Run("of 64 racing puts of an absent key one wins", func(t *testing.T) { raceToCreate(t, rc, endpoints, 8) })

	rec := &linearRecorder{began: time.Now(), count: map[string]int{}}
	ctx, cancel := context.WithTimeout(context.Background(), linearFor)
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	var failed atomic.Int64
	problem := func(f string, a ...any) {
		if failed.Add(1) < 20 {
			t.Errorf(f, a...)
		}
	}
	for id := range linearClients {
		cl := &linearClient{id: id, rnd: rand.New(rand.NewPCG(seed, uint64(id))), rc: rc, rec: rec, endpoints: endpoints, problem: problem}
		wg.Go(func() { cl.run(ctx) })
	}
	late := &linearClient{id: linearClients, rc: rc, rec: rec, problem: problem}
	nemesis(ctx, t, c, rand.New(rand.NewPCG(seed, math.MaxUint64)), late)
	wg.Wait()
	for _, what := range slices.Sorted(maps.Keys(rec.count)) {
		t.Logf("%6d × %s", rec.count[what], what)
	}
	for _, what := range []string{"put 200", "put if absent 200", "put if absent 412", "put if match 200", "put if match 412", "delete 204", "get 200", "get 404"} {
		if rec.count[what] == 0 {
			t.Errorf("the history has no %q: it proves little", what)
		}
	}
	checkLinear(t, c, rec)
}

// nemesis does one thing at a time to one node after the other until ctx ends, and leaves all nodes running.
func nemesis(ctx context.Context, t *testing.T, c *cluster, rnd *rand.Rand, late *linearClient) {
	acts := []string{"kill", "pause", "restart", "pause briefly"}
	for n := 0; waitUnlessDone(ctx, 2*time.Second); n++ {
		if n%len(acts) == 0 {
			rnd.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
		}
		name := c.Nodes[rnd.IntN(len(c.Nodes))].Name
		if leader := metadataLeader(c); leader != "" && rnd.IntN(3) > 0 {
			name = leader
		}
		act := acts[n%len(acts)]
		began := time.Now()
		switch act {
		case "kill", "restart":
			c.kill(name)
			if act == "kill" {
				waitUnlessDone(ctx, 5*time.Second)
			}
			c.startNode(name)
		default:
			for_ := 6 * time.Second // longer than an election takes: the old leader wakes up as one that was replaced
			if act == "pause briefly" {
				for_ = 700 * time.Millisecond
			}
			pid := c.node(name).PID
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatalf("SIGSTOP %s: %v", name, err)
			}
			waitUnlessDone(ctx, for_)
			reads := late.reads(c.node(name).S3)
			waitUnlessDone(ctx, lateReadLead)
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatalf("SIGCONT %s: %v", name, err)
			}
			reads.Wait()
		}
		t.Logf("%s %s: %s", act, name, time.Since(began).Round(time.Millisecond))
	}
}

// metadataLeader names the node that leads the group with the objects, "" when nobody says so.
func metadataLeader(c *cluster) string {
	var info struct {
		Nodes []struct {
			ID   uint32
			Name string
		}
		Groups []struct{ ID, Leader uint32 }
	}
	out, err := c.try("admin", "info", "--json", "--dir", c.dir)
	if err != nil || json.Unmarshal(out, &info) != nil {
		return ""
	}
	for _, g := range info.Groups {
		for _, n := range info.Nodes {
			if g.ID != 0 && g.Leader == n.ID {
				return n.Name
			}
		}
	}
	return ""
}

// lateReadLead is how long before the end of a pause the node gets reads that it will find when it wakes up: what it
// then believes to lead may have been written elsewhere since.
const lateReadLead = 300 * time.Millisecond

// reads sends several reads of each key to one node. They are operations of clients that do nothing else.
func (c *linearClient) reads(endpoint string) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range 3 * linearKeys {
		one := linearClient{id: c.id + i, rc: c.rc, rec: c.rec, problem: c.problem}
		wg.Go(func() {
			one.get(context.Background(), endpoint, linearIn{key: i % linearKeys, via: "late " + endpoint}, "GET")
		})
	}
	return &wg
}

// waitUnlessDone waits between two faults, and reports false when ctx ended first.
func waitUnlessDone(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// raceToCreate lets 64 puts with If-None-Match: * of one absent key start together through all nodes.
func raceToCreate(t *testing.T, rc *rawClient, endpoints []string, rounds int) {
	const racers = 64
	for round := range rounds {
		key := fmt.Sprintf("race-%d", round)
		size := 100
		if round%2 == 1 {
			size = 40 << 10 // not inline
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		answers, errs := make([]rawAnswer, racers), make([]error, racers)
		for i := range racers {
			wg.Go(func() {
				<-start
				answers[i], errs[i] = rc.do(context.Background(), endpoints[i%len(endpoints)], "PUT", linearBucket, key, "",
					rawBody(fmt.Sprintf("%s-%d", key, i), size), "If-None-Match", "*")
			})
		}
		close(start)
		wg.Wait()
		won := -1
		for i, a := range answers {
			switch {
			case errs[i] == nil && a.status == 200 && won >= 0:
				t.Errorf("%s: racers %d and %d both won", key, won, i)
			case errs[i] == nil && a.status == 200:
				won = i
			case errs[i] == nil && a.status == 412:
			default:
				t.Errorf("%s: racer %d got %d, %v: %s", key, i, a.status, errs[i], a.body)
			}
		}
		if won < 0 {
			t.Errorf("%s: nobody won", key)
			continue
		}
		for _, e := range endpoints {
			a, err := rc.do(context.Background(), e, "GET", linearBucket, key, "", nil)
			if err != nil || a.status != 200 || string(a.body) != string(rawBody(fmt.Sprintf("%s-%d", key, won), size)) {
				t.Errorf("%s via %s: status %d, %d bytes, %v; racer %d won", key, e, a.status, len(a.body), err, won)
			}
		}
		// The clients' listings should see their own keys only.
		if a, err := rc.do(context.Background(), endpoints[0], "DELETE", linearBucket, key, "", nil); err != nil || a.status != 204 {
			t.Errorf("delete of %s: %d, %v", key, a.status, err)
		}
	}
}

func makeRawBucket(t *testing.T, rc *rawClient, endpoint, bucket string) {
	t.Helper()
	a, err := rc.do(context.Background(), endpoint, "PUT", bucket, "", "", nil)
	if err != nil || a.status != 200 {
		t.Fatalf("create %s: %d, %v: %s", bucket, a.status, err, a.body)
	}
}
