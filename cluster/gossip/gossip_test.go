package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// TestMain looks for leaked goroutines under a deadline of its own: memberlist's Shutdown does not wait for a probe that
// is under way.
func TestMain(m *testing.M) {
	code := m.Run()
	deadline := time.Now().Add(15 * time.Second)
	for code == 0 {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// net of the tests: loopback, addresses as they become known.
type seeds struct {
	mu    sync.Mutex
	addrs []string
}

func (s *seeds) add(a string) { s.mu.Lock(); s.addrs = append(s.addrs, a); s.mu.Unlock() }

func (s *seeds) get() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.addrs...)
}

func config(n ident.Node, cluster ident.ID, key byte, s *seeds) Config {
	return Config{Cluster: cluster, Node: n, StartID: ident.New(), Bind: "127.0.0.1:0", Keys: [][]byte{bytes.Repeat([]byte{key}, 32)}, Seeds: s.get}
}

func start(t *testing.T, cfg Config, s *seeds) *Gossip {
	t.Helper()
	g, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	s.add(g.Addr())
	return g
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		case <-tick.C:
		}
	}
}

func sees(g *Gossip, n ident.Node, alive bool) func() bool {
	return func() bool { a, known := g.Alive(n); return known && a == alive }
}

func TestNodesSeeEachOtherComeGoAndComeBack(t *testing.T) {
	cluster, s := ident.New(), &seeds{}
	var mu sync.Mutex
	var heard []string
	first := config(1, cluster, 1, s)
	first.OnChange = func(n ident.Node, alive bool) {
		mu.Lock()
		heard = append(heard, fmt.Sprint(n, alive))
		mu.Unlock()
	}
	a := start(t, first, s)
	if _, known := a.Alive(2); known {
		t.Fatal("a node nobody heard of is known")
	}
	b, c := start(t, config(2, cluster, 1, s), s), start(t, config(3, cluster, 1, s), s)
	for _, g := range []*Gossip{a, b, c} {
		for n := ident.Node(1); n <= 3; n++ {
			eventually(t, fmt.Sprintf("node %d sees node %d", g.cfg.Node, n), sees(g, n, true))
		}
	}
	if id, ok := a.StartID(2); !ok || id != b.cfg.StartID {
		t.Fatalf("start id %s, expected %s", id, b.cfg.StartID)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node 1 sees node 2 leave", sees(a, 2, false))
	again := start(t, config(2, cluster, 1, s), s) // another port, another start id
	eventually(t, "node 1 sees node 2 again", func() bool {
		id, _ := a.StartID(2)
		return sees(a, 2, true)() && id == again.cfg.StartID
	})
	mu.Lock()
	defer mu.Unlock()
	if text := strings.Join(heard, " "); !strings.Contains(text, "2 true") || !strings.Contains(text, "2 false") {
		t.Fatalf("heard %s", text)
	}
}

func TestANodeThatDiesIsNoticed(t *testing.T) {
	cluster, s := ident.New(), &seeds{}
	a, b := start(t, config(1, cluster, 1, s), s), start(t, config(2, cluster, 1, s), s)
	eventually(t, "node 1 sees node 2", sees(a, 2, true))
	b.cancel()
	<-b.done
	if err := b.list.Shutdown(); err != nil { // no good-bye
		t.Fatal(err)
	}
	b.once.Do(func() {})
	eventually(t, "node 1 sees node 2 dead", sees(a, 2, false))
}

func TestOtherKeysAndOtherClustersStayOutside(t *testing.T) {
	cluster, s := ident.New(), &seeds{}
	a := start(t, config(1, cluster, 1, s), s)
	for name, cfg := range map[string]Config{"another key": config(8, cluster, 2, s), "another cluster": config(9, ident.New(), 1, s)} {
		g := start(t, cfg, &seeds{})
		if _, err := g.list.Join([]string{a.Addr()}); err == nil {
			t.Errorf("%s: joined", name)
		}
		if _, known := a.Alive(cfg.Node); known {
			t.Errorf("%s: node %d is known", name, cfg.Node)
		}
	}
}

func TestAWrongConfigurationIsNamedInFull(t *testing.T) {
	_, err := Start(Config{Bind: "host", Advertise: "x", Keys: [][]byte{make([]byte, 5)}})
	for _, w := range []string{"none may be zero", `bind address "host"`, `advertised address "x"`, "key 0 of 5 bytes", "no seeds"} {
		if !oerr.Is(err, oerr.InvalidArgument) || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
	if _, err := Start(Config{}); err == nil || !strings.Contains(err.Error(), "always encrypted") {
		t.Errorf("without a key: %v", err)
	}
}

func TestAPortInUseIsAnError(t *testing.T) {
	cluster, s := ident.New(), &seeds{}
	a := start(t, config(1, cluster, 1, s), s)
	second := config(2, cluster, 1, s)
	second.Bind = a.Addr()
	if g, err := Start(second); err == nil {
		g.Close()
		t.Fatal("two nodes on one port")
	} else if !strings.Contains(err.Error(), a.Addr()) {
		t.Fatalf("%v does not name the address", err)
	}
}

func TestMemberlistsErrorsAreWarnings(t *testing.T) {
	var out bytes.Buffer
	w := logWriter{to: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	for _, l := range []string{"[ERR] memberlist: broken\n", "[WARN] memberlist: refuting\n", "[DEBUG] memberlist: noise\n", "unmarked\n"} {
		if n, err := w.Write([]byte(l)); n != len(l) || err != nil {
			t.Fatal(n, err)
		}
	}
	text := out.String()
	if !strings.Contains(text, `level=WARN msg="memberlist: broken"`) || !strings.Contains(text, "level=INFO") || strings.Contains(text, "noise") || strings.Contains(text, "unmarked") {
		t.Fatal(text)
	}
}

func TestWhatComesFromNoMemberIsRefusedAloud(t *testing.T) {
	refused := 0
	w := logWriter{refused: func() { refused++ }}
	for line, want := range map[string]int{
		"[ERR] memberlist: discarding packet with unacceptable label \"\": from=127.0.0.1:1\n":          1,
		"[ERR] memberlist: cannot decode label; packet has been truncated from=127.0.0.1:1\n":           1,
		"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=x\n": 1,
		"[ERR] memberlist: failed to receive: EOF from=127.0.0.1:1\n":                                   1,
		"[ERR] memberlist: Failed to send ack: closed from=127.0.0.1:1\n":                               0,
		"[WARN] memberlist: Refuting a suspect message (from: node-1)\n":                                0,
	} {
		refused = 0
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil || refused != want {
			t.Errorf("%q: %d refused, expected %d (%d, %v)", line, refused, want, n, err)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(encodeMeta(7, ident.New()))
	f.Add([]byte{})
	f.Add(encodeMeta(0, ident.ID{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, id, err := decodeMeta(b)
		if err == nil && !bytes.Equal(encodeMeta(n, id), b) {
			t.Fatalf("%x was read as node %d, %s", b, n, id)
		}
	})
}
