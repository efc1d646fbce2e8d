package store

import (
	"fmt"
	"path/filepath"
	"syscall"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

const superName = "shardstore"

func shardDir(drive string, first byte) string {
	return filepath.Join(drive, "shards", fmt.Sprintf("%02x", first))
}

// shardPath is fixed in length and has no user bytes.
func shardPath(drive string, key rowKey) string {
	return filepath.Join(shardDir(drive, key[0]), fmt.Sprintf("%s.%02d", key.blob(), key.index()))
}

const repairSuffix = ".r" // a rebuild is written beside the old shard and renamed over it when durable

// Format prepares a drive folder, which must exist. A folder that is formatted for this drive is left as it is (a format that
// was cut short is completed); one with another superblock, or with shards but no superblock, is refused. fs nil is the operating system.
func Format(fs FS, cluster ident.ID, cfg DriveConfig) error {
	const op = "store.format"
	if fs == nil {
		fs = OS()
	}
	if err := cfg.validate(); err != nil {
		return oerr.E(op, oerr.InvalidArgument, err)
	}
	o := owner{Cluster: cluster, UUID: cfg.UUID, Drive: cfg.ID, Incarnation: cfg.Incarnation}
	switch sb, err := readSuper(fs, cfg.Path); {
	case err == nil:
		return checkOwner(op, cfg.Path, sb.owner, o)
	case !isNotExist(err):
		return oerr.Wrap(op, err)
	}
	names, err := fs.ReadDir(filepath.Join(cfg.Path, "segments"))
	if err != nil && !isNotExist(err) {
		return oerr.E(op, oerr.Unavailable, err)
	}
	if len(names) > 0 {
		return oerr.Errorf(op, oerr.Corrupt, "%s: read %d segments but no superblock, expected an empty drive", cfg.Path, len(names))
	}
	use, err := fs.Statfs(cfg.Path)
	if err != nil {
		return oerr.E(op, oerr.Unavailable, err)
	}
	sb := superblock{owner: o, SegmentSize: cfg.SegmentSize, Ballast: cfg.Ballast}
	if sb.SegmentSize == 0 {
		sb.SegmentSize = defaultSegment(use.Total)
	}
	if sb.Ballast == 0 {
		sb.Ballast = int64(min(1<<30, use.Total/50)) / headerSize * headerSize
	}
	sb.Ballast = max(sb.Ballast, 0)
	if err := makeDirs(fs, cfg.Path); err != nil {
		return oerr.E(op, kindOfIO(err), err)
	}
	if err := makeBallast(fs, cfg.Path, sb.Ballast); err != nil && !isNoSpace(err) {
		return oerr.E(op, kindOfIO(err), err)
	}
	return oerr.Wrap(op, writeSuper(fs, cfg.Path, &sb))
}

func defaultSegment(total uint64) int64 {
	return int64(min(max(total/segmentFraction, minSegment), maxSegment)) / (1 << 20) * (1 << 20)
}

func makeDirs(fs FS, path string) error {
	dirs := []string{filepath.Join(path, "segments"), filepath.Join(path, "shards")}
	for i := range 256 {
		dirs = append(dirs, shardDir(path, byte(i)))
	}
	for _, d := range dirs {
		if err := fs.Mkdir(d); err != nil {
			return err
		}
	}
	if err := fs.SyncDir(filepath.Join(path, "shards")); err != nil {
		return err
	}
	return fs.SyncDir(path)
}

func writeSuper(fs FS, path string, sb *superblock) error {
	tmp, final := filepath.Join(path, superName+".tmp"), filepath.Join(path, superName)
	f, err := fs.Open(tmp, syscall.O_CREAT|syscall.O_RDWR|syscall.O_TRUNC)
	if err != nil {
		return err
	}
	b := make([]byte, headerSize)
	sb.encode(b)
	err = writeFull(f, [][]byte{b}, 0)
	if err == nil {
		err = f.Fdatasync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(tmp, final)
	}
	if err == nil {
		err = fs.SyncDir(path)
	}
	return err
}

func readSuper(fs FS, path string) (superblock, error) {
	f, err := fs.Open(filepath.Join(path, superName), syscall.O_RDONLY)
	if err != nil {
		return superblock{}, err
	}
	defer f.Close()
	b := make([]byte, headerSize)
	n, err := f.Pread(b, 0)
	if err != nil {
		return superblock{}, oerr.E("store.super", oerr.Unavailable, err)
	}
	sb, err := decodeSuperblock(b[:n])
	if err != nil {
		return superblock{}, fmt.Errorf("%s: %w", filepath.Join(path, superName), err)
	}
	return sb, nil
}

func checkOwner(op, path string, got, want owner) error {
	if got != want {
		return oerr.Errorf(op, oerr.InvalidArgument, "%s: read drive %d incarnation %d uuid %s of cluster %s, expected drive %d incarnation %d uuid %s of cluster %s",
			path, got.Drive, got.Incarnation, got.UUID, got.Cluster, want.Drive, want.Incarnation, want.UUID, want.Cluster)
	}
	return nil
}

// kindOfIO classifies a failed write.
func kindOfIO(err error) oerr.Kind {
	switch {
	case isNoSpace(err):
		return oerr.DriveFull
	case isTransient(err):
		return oerr.Busy
	}
	return oerr.DriveFenced
}
