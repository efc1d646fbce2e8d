package shardtest

import (
	"context"
	"time"

	"objstore/internal/oerr"
	"objstore/shard"
)

// Op is the endpoint method (or writer method) that a Call stands for.
type Op uint8

const (
	OpCreate Op = iota + 1
	OpAppend
	OpCommit
	OpRead
	OpStat
	OpDelete
	OpList
)

var opNames = [...]string{"", "create", "append", "commit", "read", "stat", "delete", "list"}

func (o Op) String() string { return opNames[o] }

// Call is one call that reached an endpoint. List sets only Ref.Drive; Delete is one Call for each ref.
type Call struct {
	Op     Op
	Ref    shard.Ref
	Offset uint64 // Read
	Length uint64 // Read; Append: bytes of data
}

// Fault decides what happens to a call before it has any effect: nil lets it pass, an error fails it. It may block,
// and then has to end with ctx. It is called without any lock held, from many goroutines.
type Fault func(ctx context.Context, c Call) error

// Hang blocks the given calls until their context ends (all calls when no op is given): a stuck drive.
func Hang(ops ...Op) Fault {
	return on(ops, func(ctx context.Context, c Call) error {
		<-ctx.Done()
		return oerr.E("shardtest.hang", oerr.KindOf(ctx.Err()), ctx.Err())
	})
}

// Delay makes the given calls slow.
func Delay(d time.Duration, ops ...Op) Fault {
	return on(ops, func(ctx context.Context, c Call) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return oerr.E("shardtest.delay", oerr.KindOf(ctx.Err()), ctx.Err())
		}
	})
}

// Fail fails the given calls with an error of this kind.
func Fail(kind oerr.Kind, ops ...Op) Fault {
	return on(ops, func(_ context.Context, c Call) error {
		return oerr.Errorf("shardtest.fail", kind, "%s of shard %s.%d on drive %d: injected fault", c.Op, c.Ref.Blob, c.Ref.Index, c.Ref.Drive)
	})
}

// All applies faults in order; the first error wins.
func All(faults ...Fault) Fault {
	return func(ctx context.Context, c Call) error {
		for _, f := range faults {
			if err := f(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

func on(ops []Op, f Fault) Fault {
	return func(ctx context.Context, c Call) error {
		if len(ops) == 0 {
			return f(ctx, c)
		}
		for _, o := range ops {
			if o == c.Op {
				return f(ctx, c)
			}
		}
		return nil
	}
}
