package store

import (
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"objstore/internal/oerr"
)

// space decides whether a drive takes more bytes. statfs is asked at most once a second; between, what was let in is
// subtracted.
type space struct {
	fs      FS
	path    string
	reserve int64 // as configured: 0 default, < 0 none
	mu      struct {
		sync.Mutex
		at      time.Time
		total   int64
		free    int64 // at the last look, less what was let in since
		pending int64 // let in and not yet allocated on the drive
	}
}

// reserveOf is min(max(5 %, 4 GiB), 10 %) unless set.
func (s *space) reserveOf(total int64) int64 {
	switch {
	case s.reserve < 0:
		return 0
	case s.reserve > 0:
		return s.reserve
	}
	return min(max(total/20, 4<<30), total/10)
}

func (s *space) lookLocked() error {
	if now := time.Now(); s.mu.at.IsZero() || now.Sub(s.mu.at) >= statfsEvery {
		use, err := s.fs.Statfs(s.path)
		if err != nil {
			return oerr.E("store.space", oerr.Unavailable, err)
		}
		s.mu.at, s.mu.total, s.mu.free = now, int64(use.Total), int64(use.Free)-s.mu.pending
	}
	return nil
}

// take lets n bytes in, or says DriveFull. allocated must follow when they are allocated or given up.
func (s *space) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(n); err != nil {
		return err
	}
	s.mu.free -= n
	s.mu.pending += n
	return nil
}

// check says whether take would succeed now.
func (s *space) check(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked(n)
}

func (s *space) checkLocked(n int64) error {
	if err := s.lookLocked(); err != nil {
		return err
	}
	if r := s.reserveOf(s.mu.total); s.mu.free-n < r {
		return oerr.Errorf("store.space", oerr.DriveFull, "%s: %d bytes free of %d, %d asked, %d are reserved", s.path, s.mu.free, s.mu.total, n, r)
	}
	return nil
}

func (s *space) allocated(n int64) {
	s.mu.Lock()
	s.mu.pending -= n
	s.mu.Unlock()
}

// refresh makes the next question look again: space was freed.
func (s *space) refresh() {
	s.mu.Lock()
	s.mu.at = time.Time{}
	s.mu.Unlock()
}

func (s *space) usage() (total, free, reserve int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.lookLocked()
	return s.mu.total, s.mu.free, s.reserveOf(s.mu.total), err
}

func ballastPath(drive string) string { return filepath.Join(drive, "ballast") }

func makeBallast(fs FS, drive string, size int64) error {
	if size <= 0 {
		return nil
	}
	f, err := fs.Open(ballastPath(drive), syscall.O_CREAT|syscall.O_RDWR)
	if err != nil {
		return err
	}
	err = f.Fallocate(0, 0, size)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		fs.Remove(ballastPath(drive)) // half a ballast is none
	}
	return err
}
