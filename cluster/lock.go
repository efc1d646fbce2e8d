package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"objstore/internal/oerr"
)

// LockFile is locked while a process uses a data folder.
const LockFile = "lock"

// FolderLock is a data folder in use by this process.
type FolderLock struct {
	file *os.File
	once sync.Once
	err  error
}

// LockFolder takes the folder for this process, or says which process has it. The kernel drops the lock with the
// process, however it ends; the file stays.
func LockFolder(dir string) (*FolderLock, error) {
	const op = "cluster.lock_folder"
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, oerr.Errorf(op, oerr.Internal, "data folder %s: %w: it must exist and be writable", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		by := make([]byte, 32)
		n, _ := f.ReadAt(by, 0) // only a hint for the text
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, oerr.Errorf(op, oerr.Busy, "data folder %s is in use by another objstore process (%s holds process id %s): stop it first",
				dir, path, quoteShort(strings.TrimSpace(string(by[:n]))))
		}
		return nil, oerr.Errorf(op, oerr.Internal, "lock %s: %w", path, err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil {
		f.Close()
		return nil, oerr.Errorf(op, oerr.Internal, "write %s: %w", path, err)
	}
	return &FolderLock{file: f}, nil
}

// Close gives the folder up.
func (l *FolderLock) Close() error {
	l.once.Do(func() { l.err = l.file.Close() })
	return l.err
}
