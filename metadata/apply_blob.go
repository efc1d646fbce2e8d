package metadata

import (
	"math/bits"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// lostPriority is where r/ rows of lost shards stand: after all that can still be repaired.
const lostPriority = 0xff

// priority is a blob's remaining redundancy, good shards - k: 0 is the most urgent.
func priority(x *Blob, missing uint32) uint8 {
	return uint8(max(0, int(x.M)-bits.OnesCount32(missing)))
}

// checkBlob refuses a blob that must not be committed: placed on a map that is too old, abandoned, on its way out, or
// referenced already. A blob belongs to one version (PROTOCOLS E).
func (t *txn) checkBlob(x *Blob) error {
	if t.c.Epoch < t.sp.MinEpoch || x.Epoch < t.sp.MinEpoch {
		return refuse(oerr.StaleEpoch, "placed on map epoch %d, expected at least %d", min(t.c.Epoch, x.Epoch), t.sp.MinEpoch)
	}
	for _, c := range [3]struct {
		tag  byte
		kind oerr.Kind
		why  string
	}{
		{tagAbandoned, oerr.Abandoned, "was abandoned"},
		{tagGarbage, oerr.Abandoned, "is being removed"},
		{tagBlob, oerr.Exists, "is referenced already"},
	} {
		found, err := t.has(t.k.byID(c.tag, x.ID))
		if err != nil {
			return err
		}
		if found {
			return refuse(c.kind, "blob %s %s", x.ID, c.why)
		}
	}
	return nil
}

// addBlob writes the b/ row of a blob and an r/ row for each shard that its commit lists as missing.
func (t *txn) addBlob(x *Blob, ref refRow) error {
	if err := t.setRef(x.ID, ref); err != nil || x.Missing == 0 {
		return err
	}
	var rows repairRows
	for m := x.Missing; m != 0; m &= m - 1 {
		rows[bits.TrailingZeros32(m)] = repairSlot{exists: true, state: repairState{Created: t.c.Now}}
	}
	return t.putRepairs(x, x.Missing, &rows)
}

func (t *txn) setRef(blob ident.ID, ref refRow) error {
	t.buf = ref.append(t.buf[:0])
	return t.rw.Set(t.k.byID(tagBlob, blob), t.buf)
}

// dropBlob turns a referenced blob into garbage: its b/ and r/ rows go, a g/ row comes. The caller removes or
// overwrites the row that referenced it.
func (t *txn) dropBlob(x *Blob, key string) error {
	if err := t.rw.Delete(t.k.byID(tagBlob, x.ID)); err != nil {
		return err
	}
	if x.Missing != 0 {
		if _, err := t.takeRepairs(x, x.Missing); err != nil {
			return err
		}
	}
	return t.addGarbage(x, key)
}

func (t *txn) addGarbage(x *Blob, key string) error {
	t.sp.Garbage++
	t.dirty = true
	t.buf = appendGarbageRow(t.buf[:0], &GarbageRow{Blob: *x, Bucket: t.sp.Bucket, Key: key, Created: t.c.Now})
	return t.rw.Set(t.k.byID(tagGarbage, x.ID), t.buf)
}

// repairSlot is the r/ row of one shard.
type repairSlot struct {
	exists, lost bool
	state        repairState
}

type repairRows [MaxShards]repairSlot

// takeRepairs removes and returns the r/ rows of a blob whose missing shards are these.
func (t *txn) takeRepairs(x *Blob, missing uint32) (rows repairRows, err error) {
	at := priority(x, missing)
	for m := missing; m != 0; m &= m - 1 {
		i := uint8(bits.TrailingZeros32(m))
		for _, p := range [2]uint8{at, lostPriority} {
			key := t.k.repair(p, x.ID, i)
			v, ok, err := t.r.Get(key)
			if err != nil {
				return rows, err
			}
			if !ok {
				continue
			}
			st, err := decodeRepairState(v)
			if err != nil {
				return rows, err
			}
			rows[i] = repairSlot{exists: true, lost: p == lostPriority, state: st}
			t.count(rows[i].lost, -1)
			if err := t.rw.Delete(key); err != nil {
				return rows, err
			}
			break
		}
	}
	return rows, nil
}

// putRepairs writes the r/ rows of a blob whose missing shards are these.
func (t *txn) putRepairs(x *Blob, missing uint32, rows *repairRows) error {
	at := priority(x, missing)
	for m := missing; m != 0; m &= m - 1 {
		i := uint8(bits.TrailingZeros32(m))
		slot := &rows[i]
		if !slot.exists {
			continue
		}
		p := at
		if slot.lost {
			p = lostPriority
		}
		t.count(slot.lost, 1)
		t.buf = slot.state.append(t.buf[:0])
		if err := t.rw.Set(t.k.repair(p, x.ID, i), t.buf); err != nil {
			return err
		}
	}
	return nil
}

func (t *txn) count(lost bool, n int) {
	if lost {
		t.sp.Lost += uint64(n)
	} else {
		t.sp.Pending += uint64(n)
	}
	t.dirty = true
}

// rewrite writes the row that at's part stands in.
func (t *txn) rewrite(at *place) error {
	switch {
	case !at.ref.UploadID.IsZero():
		t.buf = appendPartRow(t.buf[:0], at.part)
		return t.rw.Set(t.k.numbered(tagPart, at.ref.UploadID, at.ref.Part), t.buf)
	case at.chunked:
		t.buf = appendPartsRow(t.buf[:0], at.parts)
		return t.rw.Set(t.k.numbered(tagParts, at.version.ID, at.chunk), t.buf)
	}
	t.buf = appendVersionRow(t.buf[:0], &at.version)
	return t.rw.Set(t.k.version(at.ref.Key, at.ref.Seq), t.buf)
}
