package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"objstore/internal/ident"
	"objstore/internal/oerr"
	"objstore/metadata/host"
)

// dedupEpoch is the number of log indexes in one epoch of the dedup window. The window holds the current epoch and the
// one before it, so at least this many entries; a whole epoch goes by one range deletion.
const dedupEpoch = 1 << 17

// Machine is the state machine of metadata groups. It holds no state of any group, only scratch memory: one Machine may
// serve many groups at once.
type Machine struct {
	txns sync.Pool
	// OnApplied, when set before the Machine is used, is called after a batch of entries is applied and visible. It
	// must not block.
	OnApplied func(group ident.Group, index uint64)
}

var _ host.StateMachine = (*Machine)(nil)

// NewMachine returns a Machine.
func NewMachine() *Machine { return &Machine{} }

// Stamp puts the leader's clock into a command, in place. What this binary cannot apply is replaced by an entry that
// every binary refuses, so that a command from a newer binary never stops the replicas of an older one.
func (m *Machine) Stamp(data []byte, nowMS int64) []byte {
	if len(data) < minHeader || data[0] != commandVersion {
		return []byte{commandVersion}
	}
	binary.BigEndian.PutUint64(data[nowOffset:], uint64(nowMS))
	return data
}

// Applied calls OnApplied.
func (m *Machine) Applied(group ident.Group, index uint64) {
	if m.OnApplied != nil {
		m.OnApplied(group, index)
	}
}

// refused is why apply refused a command. It is made before the command's first write.
type refused struct {
	kind   oerr.Kind
	detail string
}

func (r *refused) Error() string { return r.detail }

func refuse(kind oerr.Kind, format string, args ...any) error {
	return &refused{kind, fmt.Sprintf(format, args...)}
}

// Apply applies one entry and returns an encoded Result. An error means that the store failed, that a row is corrupt,
// or that the entry is newer than this binary: the replica must stop.
func (m *Machine) Apply(rw host.ReadWriter, _ ident.Group, index uint64, data []byte) ([]byte, error) {
	if len(data) > 0 && data[0] != commandVersion {
		return nil, oerr.Errorf("metadata.apply", oerr.Internal,
			"entry %d: read command version %d, this binary knows %d: it is too old for this log", index, data[0], commandVersion)
	}
	c, err := DecodeCommand(data)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		res := Result{Code: 1 + uint8(oerr.KindOf(err)), Detail: err.Error(), Index: index}
		return res.Append(nil), nil
	}
	t, _ := m.txns.Get().(*txn)
	if t == nil {
		t = &txn{}
	}
	t.reset(rw, index, c)
	defer m.txns.Put(t)
	out, err := t.apply()
	t.reset(nil, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("metadata: apply entry %d, op %d: %w", index, c.Op, err)
	}
	return out, nil
}

// txn is one command being applied.
type txn struct {
	reader
	rw    host.ReadWriter
	c     *Command
	index uint64
	res   Result
	dirty bool   // sp has changed and must be written
	gone  bool   // sp's row is to be removed
	buf   []byte // for values
	kb    []byte // for keys that are not under the span
}

func (t *txn) reset(rw host.ReadWriter, index uint64, c *Command) {
	t.reader.r, t.reader.sp = rw, nil
	t.rw, t.c, t.index, t.dirty, t.gone = rw, c, index, false, false
	t.res = Result{Index: index}
}

// recorded says whether an op's result goes to the dedup window. Repair and garbage outcomes name no span and may be
// applied twice without harm.
func (c *Command) recorded() bool { return c.Op != OpRepairDone && c.Op != OpGarbageDone }

// retried says whether a refusal asks the caller to do the same again: those are not recorded.
func retried(code uint8) bool {
	return code == 1+uint8(oerr.StaleEpoch) || code == 1+uint8(oerr.Busy)
}

func (t *txn) apply() ([]byte, error) {
	epoch := t.index / dedupEpoch
	if t.c.recorded() {
		if out, err := t.earlier(epoch); out != nil || err != nil {
			return out, err
		}
	}
	err := t.dispatch()
	var no *refused
	if errors.As(err, &no) {
		t.res = Result{Code: 1 + uint8(no.kind), Detail: no.detail, Index: t.index}
	} else if err != nil {
		return nil, err
	}
	out := t.res.Append(nil)
	if t.c.recorded() && t.sp != nil && !retried(t.res.Code) {
		if err := t.record(epoch, out); err != nil {
			return nil, err
		}
	}
	return out, t.flushSpan()
}

// earlier returns the first result of this request, if it was applied before, or the answer to a retry from before the
// dedup window.
func (t *txn) earlier(epoch uint64) ([]byte, error) {
	for e := epoch; ; e-- {
		t.kb = dedupKey(t.kb[:0], e, t.c.RequestID)
		v, ok, err := t.r.Get(t.kb)
		if err != nil {
			return nil, err
		}
		if ok {
			return decodeDedup(v)
		}
		if e == 0 || e < epoch {
			break
		}
	}
	oldest := uint64(0)
	if epoch > 0 {
		oldest = (epoch - 1) * dedupEpoch
	}
	if t.c.FirstIndex != 0 && t.c.FirstIndex < oldest {
		res := Result{Code: 1 + uint8(oerr.OutcomeUnknown), Index: t.index,
			Detail: fmt.Sprintf("first tried at index %d, before the dedup window that begins at %d", t.c.FirstIndex, oldest)}
		return res.Append(nil), nil
	}
	return nil, nil
}

// record puts the result into the window and drops the epochs that left it. A refusal for a span that is not there is
// not recorded: bucket ids are never used again, so it stays refused.
func (t *txn) record(epoch uint64, result []byte) error {
	if t.sp.TrimEpoch < epoch {
		t.sp.TrimEpoch, t.dirty = epoch, true
		lower := dedupKey(nil, 0, ident.ID{})
		if err := t.rw.DeleteRange(lower, dedupKey(nil, epoch-1, ident.ID{})); err != nil {
			return err
		}
	}
	t.kb = dedupKey(t.kb[:0], epoch, t.c.RequestID)
	t.buf = append(append(t.buf[:0], rowVersion), result...)
	return t.rw.Set(t.kb, t.buf)
}

func (t *txn) flushSpan() error {
	switch {
	case t.sp == nil || !t.dirty && !t.gone:
		return nil
	case t.gone:
		return t.rw.Delete(spanKey(t.sp.Bucket, t.sp.Start))
	}
	t.kb = appendKeyPart(append(append(t.kb[:0], groupSpan), t.sp.Bucket[:]...), t.sp.Start)
	t.buf = t.sp.append(t.buf[:0])
	return t.rw.Set(t.kb, t.buf)
}

func (t *txn) dispatch() error {
	switch t.c.Op {
	case OpRepairDone:
		return t.repairDone()
	case OpGarbageDone:
		return t.garbageDone()
	case OpCreateSpan:
		return t.createSpan()
	}
	sp, err := findSpan(t.r, t.c.Bucket, t.c.Key)
	if err != nil {
		return err
	}
	if sp == nil {
		if t.c.Op == OpDropSpan {
			return nil
		}
		return refuse(oerr.NoSuchBucket, "bucket %s has no span for this key in this group", t.c.Bucket)
	}
	t.enter(sp)
	if t.c.Generation != sp.Generation {
		return refuse(oerr.StaleEpoch, "span generation %d, expected %d", t.c.Generation, sp.Generation)
	}
	switch t.c.Op {
	case OpSealSpan:
		return t.sealSpan()
	case OpDropSpan:
		return t.dropSpan()
	case OpSetMinEpoch:
		return t.setMinEpoch()
	}
	if sp.Sealed {
		return refuse(oerr.NoSuchBucket, "bucket %s is being deleted", t.c.Bucket)
	}
	switch t.c.Op {
	case OpPut:
		return t.put()
	case OpDelete:
		return t.delete()
	case OpCreateUpload:
		return t.createUpload()
	case OpPutPart:
		return t.putPart()
	case OpCompleteUpload:
		return t.completeUpload()
	case OpAbortUpload:
		return t.abortUpload()
	case OpLanded:
		return t.landed()
	case OpReportBad:
		return t.reportBad()
	case OpAbandon:
		return t.abandon()
	}
	return refuse(oerr.InvalidArgument, "op %d is none that apply knows", t.c.Op)
}

// modTime is the ModTime of what the command makes: later than that of what it replaces.
func (t *txn) modTime(replaces bool, prev int64) int64 {
	if replaces {
		return max(t.c.Now, prev+1)
	}
	return t.c.Now
}
