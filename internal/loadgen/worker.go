package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"objstore/internal/sigv4"
)

// run is what the workers of one phase share.
type run struct {
	cfg     *Config
	objects int
	body    []byte
	hash    string
	next    atomic.Int64 // the next key to put or delete
	ops     atomic.Int64
	bytes   atomic.Int64
	errors  atomic.Int64
	firstMu chan struct{} // one token
	first   error
}

// worker issues one operation after another over its own connection.
type worker struct {
	*run
	id    int
	c     *client
	hist  hist
	ops   int64
	bytes int64
	keys  int64
	spent time.Duration
	rng   *rand.Rand
	token string   // list: where to go on
	page  []byte   // list: the page
	mine  []string // mixed: keys of this worker that may be deleted
}

func (w *worker) path(key string) string { return "/" + w.cfg.Bucket + "/" + sigv4.Escape(key) }

// key names object i. Digits are spread so that keys do not arrive in order only.
func (r *run) key(i int64) string {
	s := strconv.FormatInt(i, 10)
	const width = "0000000000"
	return r.cfg.Prefix + width[min(len(s), len(width)):] + s
}

// errDone ends a worker without an error: there is nothing left to delete.
var errDone = fmt.Errorf("loadgen: done")

// loop repeats op until the deadline or the end of ctx, at least once. An operation in flight at the deadline is finished
// and counted.
func (w *worker) loop(ctx context.Context, deadline time.Time, op func(context.Context) (int64, error)) {
	start := time.Now()
	for now := start; (now == start || now.Before(deadline)) && ctx.Err() == nil; {
		n, err := op(ctx)
		end := time.Now()
		if err == errDone {
			break
		}
		if err != nil {
			w.fail(ctx, err)
		} else {
			w.ops++
			w.bytes += n
			w.hist.add(end.Sub(now))
			w.run.ops.Add(1)
			w.run.bytes.Add(n)
		}
		now = end
		w.spent = end.Sub(start)
	}
	w.c.shut()
}

func (w *worker) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the run was cancelled; what broke is our doing
	}
	w.errors.Add(1)
	<-w.firstMu
	if w.first == nil {
		w.first = err
	}
	w.firstMu <- struct{}{}
	t := time.NewTimer(errorPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (w *worker) operation() func(context.Context) (int64, error) {
	switch w.cfg.Op {
	case "put":
		return w.put
	case "get":
		return w.get
	case "head":
		return w.headObject
	case "list":
		return w.list
	case "delete":
		return w.remove
	}
	return w.mixed
}

func (w *worker) putKey(ctx context.Context, key string) (int64, error) {
	return int64(len(w.body)), w.c.send(ctx, call{method: "PUT", path: w.path(key), hash: w.hash, body: w.body})
}

func (w *worker) put(ctx context.Context) (int64, error) {
	i := w.next.Add(1) - 1
	if w.objects > 0 {
		i %= int64(w.objects)
	}
	return w.putKey(ctx, w.key(i))
}

func (w *worker) get(ctx context.Context) (int64, error) {
	return w.getKey(ctx, w.key(w.rng.Int64N(int64(w.objects))))
}

func (w *worker) getKey(ctx context.Context, key string) (int64, error) {
	var n int64
	err := w.c.send(ctx, call{method: "GET", path: w.path(key), hash: sigv4.EmptyPayload, sink: func(_ answer, r io.Reader) error {
		for {
			m, err := r.Read(w.c.buf)
			if w.cfg.Verify && (n+int64(m) > int64(len(w.body)) || !bytes.Equal(w.c.buf[:m], w.body[n:n+int64(m)])) {
				return fmt.Errorf("body: wrong between bytes %d and %d", n, n+int64(m))
			}
			n += int64(m)
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}})
	if err == nil && n != w.cfg.Size {
		err = fmt.Errorf("GET %s: read %d bytes, expected %d", key, n, w.cfg.Size)
	}
	return n, err
}

func (w *worker) headObject(ctx context.Context) (int64, error) {
	return 0, w.c.send(ctx, call{method: "HEAD", path: w.path(w.key(w.rng.Int64N(int64(w.objects)))), hash: sigv4.EmptyPayload})
}

func (w *worker) remove(ctx context.Context) (int64, error) {
	i := w.next.Add(1) - 1
	if i >= int64(w.objects) {
		return 0, errDone
	}
	return 0, w.removeKey(ctx, w.key(i))
}

func (w *worker) removeKey(ctx context.Context, key string) error {
	return w.c.send(ctx, call{method: "DELETE", path: w.path(key), hash: sigv4.EmptyPayload})
}

// list reads the next page, from the first again after the last.
func (w *worker) list(ctx context.Context) (int64, error) {
	q := "list-type=2&max-keys=" + strconv.Itoa(listPage) + "&prefix=" + sigv4.EscapeQuery(w.cfg.Prefix)
	if w.token != "" {
		q = "continuation-token=" + sigv4.EscapeQuery(w.token) + "&" + q
	}
	w.page = w.page[:0]
	err := w.c.send(ctx, call{method: "GET", path: "/" + w.cfg.Bucket, query: q, hash: sigv4.EmptyPayload, sink: func(_ answer, r io.Reader) error {
		for len(w.page) <= maxListBody {
			m, err := r.Read(w.c.buf)
			w.page = append(w.page, w.c.buf[:m]...)
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
		}
		return fmt.Errorf("list: a page of more than %d bytes", maxListBody)
	}})
	if err != nil {
		w.token = ""
		return 0, err
	}
	keys := int64(bytes.Count(w.page, []byte("<Key>")))
	w.keys += keys
	w.token = element(w.page, "NextContinuationToken")
	if keys == 0 {
		return 0, fmt.Errorf("list: a page without keys: %.200s", w.page)
	}
	return int64(len(w.page)), nil
}

// mixed is 45 % get, 30 % head, 15 % put, 10 % delete of what this worker put.
func (w *worker) mixed(ctx context.Context) (int64, error) {
	const maxMine = 10_000
	switch p := w.rng.IntN(100); {
	case p < 45:
		return w.get(ctx)
	case p < 75:
		return w.headObject(ctx)
	case p >= 90 && len(w.mine) > 0 || len(w.mine) >= maxMine:
		last := len(w.mine) - 1
		key := w.mine[last]
		w.mine = w.mine[:last]
		return 0, w.removeKey(ctx, key)
	}
	key := w.cfg.Prefix + "mixed/" + strconv.Itoa(w.id) + "/" + strconv.FormatInt(w.next.Add(1), 10)
	n, err := w.putKey(ctx, key)
	if err == nil {
		w.mine = append(w.mine, key)
	}
	return n, err
}
