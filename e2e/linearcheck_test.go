package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearKind is what was asked.
type linearKind uint8

const (
	opGet linearKind = iota // GET, HEAD, or what a page of a listing shows of one key
	opPut
	opPutIfAbsent
	opPutIfMatch
	opDelete
	opDeleteIfMatch
)

func (k linearKind) String() string {
	return [...]string{"get", "put", "put if absent", "put if match", "delete", "delete if match"}[k]
}

// linearIn is the input of one operation on one key.
type linearIn struct {
	kind linearKind
	key  int
	etag string // that a put writes
	cond string // that If-Match names
	via  string
}

// linearOut is the output of it. A write whose outcome is unknown has status 0; a read whose outcome is unknown is no operation at all.
type linearOut struct {
	status int
	etag   string // that a get saw, "" for absent
}

// linearModel is one key: its state is the ETag of the current version, "" for none. Each body is written once, so an ETag
// names the write that made it.
func linearModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, linearKeys)
			for _, o := range h {
				k := o.Input.(linearIn).key
				parts[k] = append(parts[k], o)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, in, out any) (bool, any) {
			ok, next := linearStep(state.(string), in.(linearIn), out.(linearOut))
			return ok, next
		},
		DescribeOperation: func(in, out any) string {
			i, o := in.(linearIn), out.(linearOut)
			return fmt.Sprintf("%s k%d etag=%.6s cond=%.6s via %s: %d %.6s", i.kind, i.key, i.etag, i.cond, i.via, o.status, o.etag)
		},
		DescribeState: func(s any) string { return fmt.Sprintf("%.6s", s) },
	}
}

// linearStep is the sequential rule. The expected status follows from the state; a write of unknown outcome has the effect it
// would have had, and may stand at the very end of the history, where it has had none that anybody saw.
func linearStep(state string, i linearIn, o linearOut) (bool, string) {
	if i.kind == opGet {
		return o.etag == state, state
	}
	want, next := 200, i.etag
	if i.kind == opDelete || i.kind == opDeleteIfMatch {
		want, next = 204, ""
	}
	switch i.kind {
	case opPutIfAbsent:
		if state != "" {
			want, next = 412, state
		}
	case opPutIfMatch, opDeleteIfMatch:
		if state == "" {
			want, next = 404, state
		} else if state != i.cond {
			want, next = 412, state
		}
	}
	return o.status == 0 || o.status == want, next
}

// settleHistory ends what is known to have happened: a write of unknown outcome whose ETag somebody saw took effect before that
// somebody's answer. It keeps the check small and hides nothing.
func settleHistory(ops []porcupine.Operation) {
	seen := map[string]int64{}
	see := func(etag string, ret int64) {
		if at, ok := seen[etag]; !ok || ret < at {
			seen[etag] = ret
		}
	}
	for _, o := range ops {
		in, out := o.Input.(linearIn), o.Output.(linearOut)
		switch {
		case in.kind == opGet && out.etag != "":
			see(out.etag, o.Return)
		case (in.kind == opPutIfMatch && out.status == 200) || (in.kind == opDeleteIfMatch && out.status == 204):
			see(in.cond, o.Return)
		}
	}
	for i := range ops {
		if at, ok := seen[ops[i].Input.(linearIn).etag]; ok && ops[i].Return == outcomeUnknown {
			ops[i].Return = max(at, ops[i].Call)
		}
	}
}

// linearListRule is the rule for pages on its own, without the search: a key whose put was answered before the page began and
// that nobody may have deleted since is there; a key whose delete was answered before the page began and that nobody
// may have put since is not.
func linearListRule(ops []porcupine.Operation, pages []linearPage) []string {
	var puts, dels [linearKeys][]porcupine.Operation
	for _, o := range ops {
		in, out := o.Input.(linearIn), o.Output.(linearOut)
		switch {
		case in.kind == opGet || out.status >= 400:
		case in.kind == opDelete || in.kind == opDeleteIfMatch:
			dels[in.key] = append(dels[in.key], o)
		default:
			puts[in.key] = append(puts[in.key], o)
		}
	}
	var problems []string
	for _, pg := range pages {
		for k := pg.from; k < pg.to; k++ {
			_, there := pg.seen[k]
			if !there && linearDecided(pg, puts[k], dels[k]) {
				problems = append(problems, fmt.Sprintf("page via %s from %d to %d: %s is missing", pg.via, pg.call, pg.ret, linearKey(k)))
			}
			if there && linearDecided(pg, dels[k], puts[k]) {
				problems = append(problems, fmt.Sprintf("page via %s from %d to %d: %s shows, but it was deleted", pg.via, pg.call, pg.ret, linearKey(k)))
			}
		}
	}
	return problems
}

// linearDecided reports whether one of done was answered before the page began and none of undone can have come after it.
func linearDecided(pg linearPage, done, undone []porcupine.Operation) bool {
	var last porcupine.Operation // the one answered before the page that began last
	found := false
	for _, o := range done {
		if o.Return < pg.call && (!found || o.Call > last.Call) {
			last, found = o, true
		}
	}
	return found && !slices.ContainsFunc(undone, func(o porcupine.Operation) bool { return o.Return >= last.Call && o.Call <= pg.ret })
}

// checkLinear decides. A history that cannot be decided in time is a failure: nothing was shown.
func checkLinear(t *testing.T, c *cluster, rec *linearRecorder) {
	t.Helper()
	settleHistory(rec.ops)
	for i, p := range linearListRule(rec.ops, rec.pages) {
		if i < 20 {
			t.Errorf("LIST: %s", p)
		}
	}
	open := 0
	for _, o := range rec.ops {
		if o.Return == outcomeUnknown {
			open++
		}
	}
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(linearModel(), rec.ops, linearCheckTimeout)
	t.Logf("%d operations, %d of them open, %d pages: %s after %s", len(rec.ops), open, len(rec.pages), result, time.Since(began).Round(time.Millisecond))
	if result == porcupine.Ok {
		return
	}
	t.Errorf("the history is %s", result)
	dir, err := os.MkdirTemp("", "objstore-history-")
	if err != nil {
		t.Error(err)
		return
	}
	if err := porcupine.VisualizePath(linearModel(), info, filepath.Join(dir, "history.html")); err != nil {
		t.Error(err)
	}
	writeLinearHistory(t, filepath.Join(dir, "history.jsonl"), rec.ops)
	t.Logf("the history is in %s", dir)
}

func writeLinearHistory(t *testing.T, path string, ops []porcupine.Operation) {
	f, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	enc := json.NewEncoder(f)
	for _, o := range ops {
		i, out := o.Input.(linearIn), o.Output.(linearOut)
		enc.Encode(map[string]any{"client": o.ClientId, "call": o.Call, "return": o.Return, "kind": i.kind.String(), "key": i.key, "etag": i.etag,
			"cond": i.cond, "via": i.via, "status": out.status, "saw": out.etag})
	}
}

// TestTheCheckerSeesWhatIsWrong feeds histories that no store may have: a check that cannot fail shows nothing.
func TestTheCheckerSeesWhatIsWrong(t *testing.T) {
	type ops = []porcupine.Operation
	at := func(call, ret int64, i linearIn, o linearOut) porcupine.Operation {
		return porcupine.Operation{Input: i, Call: call, Return: ret, Output: o}
	}
	put := func(call, ret int64, etag string, status int) porcupine.Operation {
		return at(call, ret, linearIn{kind: opPut, etag: etag}, linearOut{status: status})
	}
	get := func(call, ret int64, etag string) porcupine.Operation {
		return at(call, ret, linearIn{kind: opGet}, linearOut{200, etag})
	}
	absent := func(call, ret int64, etag string, status int) porcupine.Operation {
		return at(call, ret, linearIn{kind: opPutIfAbsent, etag: etag}, linearOut{status: status})
	}
	match := func(call, ret int64, cond, etag string, status int) porcupine.Operation {
		return at(call, ret, linearIn{kind: opPutIfMatch, etag: etag, cond: cond}, linearOut{status: status})
	}
	del := func(call, ret int64, status int) porcupine.Operation {
		return at(call, ret, linearIn{kind: opDelete}, linearOut{status: status})
	}
	for _, tc := range []struct {
		name string
		ops  ops
		want bool
	}{
		{"a read of what was written", ops{put(1, 2, "a", 200), get(3, 4, "a")}, true},
		{"a stale read", ops{put(1, 2, "a", 200), put(3, 4, "b", 200), get(5, 6, "a")}, false},
		{"a lost write", ops{put(1, 2, "a", 200), get(3, 4, "")}, false},
		{"an unknown write that shows later", ops{put(1, outcomeUnknown, "a", 0), get(3, 4, ""), get(5, 6, "a")}, true},
		{"an unknown write that shows and is undone", ops{put(1, outcomeUnknown, "a", 0), get(3, 4, "a"), get(5, 6, "")}, false},
		{"an unknown write that takes effect twice", ops{put(1, outcomeUnknown, "a", 0), get(3, 4, "a"), put(5, 6, "b", 200), get(7, 8, "a")}, false},
		{"two winners", ops{absent(1, 5, "a", 200), absent(1, 5, "b", 200)}, false},
		{"one winner", ops{absent(1, 5, "a", 412), absent(1, 5, "b", 200), get(6, 7, "b")}, true},
		{"412 with nothing there", ops{absent(1, 2, "a", 412)}, false},
		{"an ETag matched twice", ops{put(1, 2, "a", 200), match(3, 9, "a", "b", 200), match(3, 9, "a", "c", 200)}, false},
		{"a refused write that shows", ops{put(1, 2, "a", 200), match(3, 4, "x", "b", 412), get(5, 6, "b")}, false},
		{"a deleted object that reappears", ops{put(1, 2, "a", 200), del(3, 4, 204), get(5, 6, "a")}, false},
		{"an unknown delete", ops{put(1, 2, "a", 200), del(3, outcomeUnknown, 0), get(5, 6, "a"), get(7, 8, "")}, true},
	} {
		settleHistory(tc.ops)
		if got := porcupine.CheckOperations(linearModel(), tc.ops); got != tc.want {
			t.Errorf("%s: linearizable %v, expected %v", tc.name, got, tc.want)
		}
	}
	show, hide := map[int]string{0: "a"}, map[int]string{}
	for _, tc := range []struct {
		name string
		ops  ops
		seen map[int]string
		want bool
	}{
		{"a page without a key that is there", ops{put(1, 2, "a", 200)}, hide, false},
		{"a page with a key that is there", ops{put(1, 2, "a", 200)}, show, true},
		{"a page without a key that is being put", ops{put(1, 15, "a", 200)}, hide, true},
		{"a page without a key whose put is unknown", ops{put(1, outcomeUnknown, "a", 0)}, hide, true},
		{"a page with a deleted key", ops{put(1, 2, "a", 200), del(3, 4, 204)}, show, false},
		{"a page with a key that is being deleted", ops{put(1, 2, "a", 200), del(3, 15, 204)}, show, true},
		{"a page with a deleted key whose unknown put came late", ops{put(1, outcomeUnknown, "a", 0), del(3, 4, 204)}, show, true},
		{"a page without a key whose unknown delete came late", ops{del(1, outcomeUnknown, 0), put(3, 4, "a", 200)}, hide, true},
	} {
		pg := linearPage{call: 10, ret: 20, from: 0, to: 1, seen: tc.seen}
		if got := len(linearListRule(tc.ops, []linearPage{pg})) == 0; got != tc.want {
			t.Errorf("%s: accepted %v, expected %v", tc.name, got, tc.want)
		}
	}
}
