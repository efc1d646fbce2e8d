package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// segmentLog is the place where the next record goes. Only the committer moves it (and recovery, before).
type segmentLog struct {
	active     File // written with O_DIRECT where that works
	number     uint64
	generation ident.ID
	size       int64
	pos        int64
	mu         struct { // what others may ask
		sync.Mutex
		number uint64
		room   int64
	}
}

func segmentName(number uint64) string { return fmt.Sprintf("%016x.seg", number) }

func parseSegmentName(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, ".seg")
	if !ok || len(hex) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 64)
	return n, err == nil && segmentName(n) == name
}

func (d *drive) segmentPath(number uint64) string {
	return filepath.Join(d.segmentsDir(), segmentName(number))
}

func (l *segmentLog) publish() {
	l.mu.Lock()
	l.mu.number, l.mu.room = l.number, l.size-l.pos
	if l.active == nil {
		l.mu.room = 0
	}
	l.mu.Unlock()
}

// activeNumber returns the segment that is being appended to, room what is left in it.
func (l *segmentLog) activeNumber() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.number
}

func (l *segmentLog) room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.room
}

// roll begins a new segment. Its header and name are durable before a record goes in. For deletes alone it makes a small
// one out of the reserve when the drive is full.
func (d *drive) roll(deletesOnly bool) error {
	l := &d.log
	size := d.super.SegmentSize
	err := d.space.take(size)
	switch {
	case err == nil:
		defer d.space.allocated(size)
	case deletesOnly && oerr.Is(err, oerr.DriveFull):
		size = deleteSegment
	default:
		return err
	}
	h := segmentHeader{owner: d.owner, Generation: ident.New(), Number: l.number + 1, Size: size}
	path := d.segmentPath(h.Number)
	f, err := d.fs.Open(path, d.openFlags(syscall.O_CREAT|syscall.O_EXCL|syscall.O_RDWR))
	if err != nil {
		return d.writeFailed("store.roll", err)
	}
	if err = f.Fallocate(0, 0, h.Size); err != nil {
		f.Close()
		d.fs.Remove(path)
		if isUnsupported(err) {
			err = fmt.Errorf("the file system cannot allocate ahead: %w", err)
		}
		return d.writeFailed("store.roll", err)
	}
	b := d.headers.get()
	h.encode(b)
	err = writeFull(f, [][]byte{b}, 0)
	d.headers.put(b)
	if err != nil {
		f.Close()
		d.fs.Remove(path)
		return d.writeFailed("store.roll", err)
	}
	if err = f.Fdatasync(); err == nil {
		err = d.fs.SyncDir(d.segmentsDir())
	}
	if err != nil {
		f.Close()
		return d.syncFailed("store.roll", err)
	}
	if err := d.index.addSegment(h.Number, h.Generation); err != nil {
		f.Close()
		return d.syncFailed("store.roll", err)
	}
	old, oldNumber := l.active, l.number
	l.active, l.number, l.generation, l.size, l.pos = f, h.Number, h.Generation, h.Size, headerSize
	l.publish()
	if old != nil {
		if err := old.Close(); err != nil {
			return d.syncFailed("store.roll", err)
		}
		if d.index.live(oldNumber) == 0 {
			d.rec.dead(oldNumber)
		}
	}
	return nil
}

func isUnsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
