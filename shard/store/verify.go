package store

import (
	"context"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/shard"
)

const verifyPage = 256 // rows read ahead of a verify pass

type listed struct {
	key rowKey
	row row
}

// page returns up to n rows after the given key.
func (d *drive) page(after *rowKey, n int) (rows []listed, err error) {
	err = d.index.shards(after, func(k rowKey, r row) bool {
		rows = append(rows, listed{k, r})
		return len(rows) < n
	})
	return rows, err
}

// Verify reads and checks every sealed shard of a drive once, at no more than rate bytes a second (0: no limit), and
// calls fn with what it found; StateUnknown means that it could not be found out. It returns when it is through or ctx ends.
func (s *Store) Verify(ctx context.Context, drive ident.Drive, rate int64, fn func(shard.Info)) error {
	const op = "store.verify"
	d, err := s.drive(op, drive)
	if err != nil {
		return err
	}
	defer s.leave()
	var after *rowKey
	for {
		rows, err := d.page(after, verifyPage)
		if err != nil || len(rows) == 0 {
			return oerr.Wrap(op, err)
		}
		for i := range rows {
			start := time.Now()
			if info, ok := d.verifyListed(ctx, rows[i].key); ok {
				if ctx.Err() != nil {
					return oerr.E(op, oerr.KindOf(ctx.Err()), ctx.Err())
				}
				fn(info)
			}
			if rate > 0 {
				due := time.Duration(float64(rows[i].row.size()) / float64(rate) * float64(time.Second))
				if err := d.pause(ctx, due-time.Since(start)); err != nil {
					return oerr.E(op, oerr.KindOf(err), err)
				}
			}
			if d.closed.Load() {
				return oerr.Errorf(op, oerr.Closed, "store is closed")
			}
		}
		after = &rows[len(rows)-1].key
	}
}

// verifyListed checks one shard as it is now; false when it is gone.
func (d *drive) verifyListed(ctx context.Context, key rowKey) (shard.Info, bool) {
	e := d.gate.enter()
	defer d.gate.leave(e)
	r, ok, err := d.index.get(key)
	if err == nil && !ok {
		return shard.Info{}, false
	}
	var info shard.Info
	if err == nil {
		info, err = d.inspect(ctx, key, r, true)
	}
	if err == nil && info.State == shard.StateMissing {
		if _, still, gerr := d.index.get(key); gerr == nil && !still {
			return shard.Info{}, false
		}
	}
	if err != nil {
		info = d.infoOf(key, &r)
		info.State, info.Detail = shard.StateUnknown, err.Error()
	}
	return info, true
}

func (d *drive) pause(ctx context.Context, t time.Duration) error {
	if t <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-d.closing:
		return oerr.Errorf("store.pause", oerr.Closed, "store is closed")
	case <-ctx.Done():
		return ctx.Err()
	}
}
