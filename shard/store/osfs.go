package store

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// osFS is the operating system.
type osFS struct{}

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

func pathErr(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func (osFS) Open(path string, flags int) (File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return nil, pathErr("open", path, err)
	}
	return &osFile{fd: fd, path: path}, nil
}

func (osFS) Mkdir(path string) error {
	err := unix.Mkdir(path, 0o700)
	if err == unix.EEXIST {
		err = nil
	}
	return pathErr("mkdir", path, err)
}

func (osFS) Remove(path string) error { return pathErr("unlink", path, unix.Unlink(path)) }

func (osFS) Rename(from, to string) error { return pathErr("rename", from, unix.Rename(from, to)) }

func (osFS) ReadDir(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func openDir(path string) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, pathErr("open", path, err)
}

// SyncDir is fsync of a directory. On an XFS that was shut down meanwhile, that fsync succeeds without having written
// anything (xfs_dir_fsync asks only whether the inode is still pinned in the log, and a shutdown unpins it; seen on
// Linux 6.18), while open fails with EIO. So an open that succeeds afterwards is what makes the fsync believable.
func (osFS) SyncDir(path string) error {
	fd, err := openDir(path)
	if err != nil {
		return err
	}
	err = retry(func() error { return unix.Fsync(fd) })
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return pathErr("fsync", path, err)
	}
	if fd, err = openDir(path); err != nil {
		return err
	}
	return pathErr("close", path, unix.Close(fd))
}

func (osFS) Statfs(path string) (Usage, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(path, &st) }); err != nil {
		return Usage{}, pathErr("statfs", path, err)
	}
	return Usage{Total: st.Blocks * uint64(st.Bsize), Free: st.Bavail * uint64(st.Bsize)}, nil
}

type osFile struct {
	fd   int
	path string
}

func (f *osFile) Pwritev(bufs [][]byte, off int64) (int, error) {
	for {
		n, err := unix.Pwritev(f.fd, bufs, off)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("pwritev %s at %d: %w", f.path, off, err)
		}
		return n, nil
	}
}

func (f *osFile) Pread(b []byte, off int64) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Pread(f.fd, b[done:], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("pread %s at %d: %w", f.path, off+int64(done), err)
		}
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

func (f *osFile) PreadCached(b []byte, off int64) int {
	iov := [1][]byte{b}
	n, err := unix.Preadv2(f.fd, iov[:], off, unix.RWF_NOWAIT)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (f *osFile) Fdatasync() error {
	return pathErr("fdatasync", f.path, retry(func() error { return unix.Fdatasync(f.fd) }))
}

func (f *osFile) Fallocate(mode uint32, off, n int64) error {
	return pathErr("fallocate", f.path, retry(func() error { return unix.Fallocate(f.fd, mode, off, n) }))
}

func (f *osFile) Fadvise(off, n int64, advice int) { unix.Fadvise(f.fd, off, n, advice) } // advice: nothing to do about an error

func (f *osFile) SeekData(off int64) (int64, error) {
	pos, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	return pos, pathErr("lseek", f.path, err)
}

func (f *osFile) Size() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return 0, pathErr("fstat", f.path, err)
	}
	return st.Size, nil
}

func (f *osFile) Close() error { return pathErr("close", f.path, unix.Close(f.fd)) }
