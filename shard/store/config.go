package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Limits bound what one drive may use. A zero field means its default.
type Limits struct {
	ReadWorkers     int           // device reads in flight
	WriteWorkers    int           // file writes in flight
	MaxWaiting      int           // reads waiting for a worker; more are Busy
	MaxWriters      int           // open writers and deletes; more are Busy
	MaxQueue        int           // commits and deletes waiting for the group commit; more are Busy
	BounceBytes     int64         // buffers for device reads and unaligned appends
	OpenFiles       int           // cached descriptors
	CheckpointBytes int64         // stored since the last index flush, so recovery scans no more than about this
	StuckAfter      time.Duration // an I/O this old counts as stuck
	FenceAfter      time.Duration // a write this old fences the drive
	CloseWithin     time.Duration // how long Close waits for the device
}

// Defaults of Limits, and limits that are not settings.
const (
	defaultReadWorkers     = 16
	defaultWriteWorkers    = 8
	defaultMaxWaiting      = 512
	defaultMaxWriters      = 2048
	defaultMaxQueue        = 4096
	defaultBounceBytes     = 24 << 20
	defaultOpenFiles       = 256
	defaultCheckpointBytes = 512 << 20
	defaultStuckAfter      = 5 * time.Second
	defaultFenceAfter      = 30 * time.Second
	defaultCloseWithin     = 15 * time.Second

	// MaxLength is the longest shard, in bytes: S3's largest single body with k = 1, with room to spare. It bounds a
	// footer's checksum table to 512 KiB.
	MaxLength = 8 << 30
	// MaxList is the most shards one List returns.
	MaxList = 10000

	maxKeyLen       = 1024      // bytes; S3's limit
	maxShards       = 32        // k+m; erasure's limit
	maxBatch        = 512       // operations in one group commit
	maxBatchBytes   = 32 << 20  // bytes in one group commit
	maxIOV          = 1000      // buffers in one pwritev; Linux allows 1024
	maxAppends      = 2         // appends in flight for each file
	maxHoles        = 64 << 10  // holes waiting to be punched in memory
	minSegment      = 4 << 20   // bytes
	maxSegment      = 256 << 20 // bytes
	deleteSegment   = 1 << 20   // bytes of a segment made on a full drive, for deletes
	copyBytes       = 32 << 20  // bytes of appended data that had to be copied
	segmentFraction = 64        // a segment is at most 1/64 of its drive
	readPiece       = 1 << 20   // bytes in one device read
	indexCacheBytes = 8 << 20
	indexTableBytes = 4 << 20
	statfsEvery     = time.Second
	reclaimEvery    = 200 * time.Millisecond
	gateWait        = 5 * time.Second
	maxCachedCRCs   = 1 << 20 // checksums of open files kept in memory: 4 MiB
)

// DriveConfig is one drive folder.
type DriveConfig struct {
	ID          ident.Drive
	Incarnation ident.Incarnation
	UUID        ident.ID
	Path        string // absolute
	// Reserve is how many bytes of the drive stay free of shards, Ballast how many are kept allocated for an emergency,
	// SegmentSize the length of new segments. 0 is the default of PROTOCOLS F; a negative Reserve or Ballast is none.
	// Ballast and SegmentSize are settled by Format.
	Reserve     int64
	Ballast     int64
	SegmentSize int64
	// Fenced opens the drive fenced: the cluster remembers what this process cannot.
	Fenced bool
}

// Config is what Open needs.
type Config struct {
	Cluster ident.ID
	Drives  []DriveConfig
	Limits  Limits
	// OnFence is called once for each drive that gets fenced, during Open or after, on a goroutine of its own.
	OnFence func(drive ident.Drive, cause error)
	// FS is the file system; nil is the operating system's. The index does not go through it.
	FS FS
}

// Validate returns every problem at once.
func (c *Config) Validate() error {
	var errs []error
	if c.Cluster.IsZero() {
		errs = append(errs, errors.New("no cluster id"))
	}
	if len(c.Drives) == 0 {
		errs = append(errs, errors.New("no drives"))
	}
	ids, paths := map[ident.Drive]bool{}, map[string]bool{}
	for i := range c.Drives {
		d := &c.Drives[i]
		if err := d.validate(); err != nil {
			errs = append(errs, err)
		}
		if ids[d.ID] || paths[d.Path] {
			errs = append(errs, fmt.Errorf("drive %d at %q is given twice", d.ID, d.Path))
		}
		ids[d.ID], paths[d.Path] = true, true
	}
	if len(errs) > 0 {
		return oerr.E("store.open", oerr.InvalidArgument, errors.Join(errs...))
	}
	return nil
}

func (d *DriveConfig) validate() error {
	switch {
	case d.ID == 0 || d.Incarnation == 0 || d.UUID.IsZero():
		return fmt.Errorf("drive %d at %q: read incarnation %d and uuid %s, expected all of them set", d.ID, d.Path, d.Incarnation, d.UUID)
	case !filepath.IsAbs(d.Path):
		return fmt.Errorf("drive %d: path %q, expected an absolute path", d.ID, d.Path)
	case d.SegmentSize != 0 && (d.SegmentSize < minSegment || d.SegmentSize > 1<<40 || d.SegmentSize%headerSize != 0):
		return fmt.Errorf("drive %d: segment size %d, expected a multiple of %d from %d up", d.ID, d.SegmentSize, headerSize, minSegment)
	}
	return nil
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

func (l Limits) withDefaults() Limits {
	return Limits{
		ReadWorkers:     orDefault(l.ReadWorkers, defaultReadWorkers),
		WriteWorkers:    orDefault(l.WriteWorkers, defaultWriteWorkers),
		MaxWaiting:      orDefault(l.MaxWaiting, defaultMaxWaiting),
		MaxWriters:      orDefault(l.MaxWriters, defaultMaxWriters),
		MaxQueue:        orDefault(l.MaxQueue, defaultMaxQueue),
		BounceBytes:     max(orDefault(l.BounceBytes, defaultBounceBytes), 2*readPiece),
		OpenFiles:       orDefault(l.OpenFiles, defaultOpenFiles),
		CheckpointBytes: orDefault(l.CheckpointBytes, defaultCheckpointBytes),
		StuckAfter:      orDefault(l.StuckAfter, defaultStuckAfter),
		FenceAfter:      orDefault(l.FenceAfter, defaultFenceAfter),
		CloseWithin:     orDefault(l.CloseWithin, defaultCloseWithin),
	}
}
