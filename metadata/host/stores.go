package host

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// The two Pebbles and the staging folder of a metadata drive, under Config.Dir.
const (
	logFolder   = "log"
	stateFolder = "state"
	stageFolder = "staging"

	storeFormat = 1
)

// stores is both Pebbles of a drive.
type stores struct {
	log      *logStore
	state    *stateStore
	stageDir string
	cache    *pebble.Cache
}

// storeHooks is what the stores tell the host.
type storeHooks struct {
	fatal   func(error)
	flushed func() // the state store has flushed; must not block
}

func openStores(cfg *Config, hooks storeHooks) (s *stores, err error) {
	// Pebble takes the memtables out of the cache's budget: without room for them nothing would be cached at all.
	l := &cfg.Limits
	s = &stores{cache: pebble.NewCache(l.BlockCache + 2*int64(l.LogMemTable+l.StateMemTable))}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	join := cfg.FS.PathJoin
	s.stageDir = join(cfg.Dir, stageFolder)
	if err := makeFolders(cfg, s.stageDir); err != nil {
		return s, err
	}
	logOpts := pebbleOptions(cfg, s.cache, hooks)
	logOpts.MemTableSize = cfg.Limits.LogMemTable
	for i := range logOpts.Levels {
		// Entries are mostly inline bodies and live for seconds: compressing them is wasted.
		logOpts.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	db, err := pebble.Open(join(cfg.Dir, logFolder), logOpts)
	if err != nil {
		return s, fmt.Errorf("host: open log store: %w", err)
	}
	s.log = &logStore{db: db, cacheLm: cfg.Limits.EntryCache}
	stateOpts := pebbleOptions(cfg, s.cache, hooks)
	stateOpts.MemTableSize = cfg.Limits.StateMemTable
	stateOpts.DisableWAL = true
	for i := range stateOpts.Levels {
		stateOpts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // most lookups of apply are for rows that are not there
		if i < len(stateOpts.Levels)-1 {
			stateOpts.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
		}
	}
	stateOpts.EventListener.FlushEnd = func(i pebble.FlushInfo) {
		if i.Err == nil && hooks.flushed != nil {
			hooks.flushed()
		}
	}
	if db, err = pebble.Open(join(cfg.Dir, stateFolder), stateOpts); err != nil {
		return s, fmt.Errorf("host: open state store: %w", err)
	}
	s.state = &stateStore{db: db}
	return s, s.checkFormat()
}

func pebbleOptions(cfg *Config, cache *pebble.Cache, hooks storeHooks) *pebble.Options {
	o := &pebble.Options{
		FS: cfg.FS, Cache: cache, FormatMajorVersion: pebble.FormatNewest, Logger: pebbleLogger{hooks.fatal},
		MemTableStopWritesThreshold: 4, L0CompactionThreshold: 8, L0StopWritesThreshold: 64, MaxOpenFiles: 512,
		LBaseMaxBytes:              64 << 20,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { cfg.OnEvent(Event{Kind: EventStore, Text: err.Error()}) },
		},
	}
	o.Experimental.DisableIngestAsFlushable = func() bool { return true } // the state store has no WAL to put it in
	return o
}

// makeFolders makes all folders durable (Pebble syncs what is in its folder, not the folder's own name) and empties
// the staging folder of what a crash left there.
func makeFolders(cfg *Config, stage string) error {
	for _, d := range []string{cfg.FS.PathJoin(cfg.Dir, logFolder), cfg.FS.PathJoin(cfg.Dir, stateFolder), stage} {
		if err := cfg.FS.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("host: %w", err)
		}
	}
	for _, d := range []string{cfg.Dir, cfg.FS.PathDir(cfg.Dir)} {
		f, err := cfg.FS.OpenDir(d)
		if err != nil {
			return fmt.Errorf("host: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("host: sync folder %s: %w", d, err)
		}
	}
	return emptyFolder(cfg, stage)
}

func emptyFolder(cfg *Config, dir string) error {
	names, err := cfg.FS.List(dir)
	if err != nil {
		return fmt.Errorf("host: %w", err)
	}
	for _, n := range names {
		if err := cfg.FS.Remove(cfg.FS.PathJoin(dir, n)); err != nil {
			return fmt.Errorf("host: %w", err)
		}
	}
	return nil
}

// checkFormat refuses a log store of another format; a new one is marked.
func (s *stores) checkFormat() error {
	key := prefix(formatGroup, 0)
	v, err := s.log.get(key)
	if err != nil {
		return err
	}
	if v == nil {
		if err := s.log.db.Set(key, []byte{storeFormat}, pebble.Sync); err != nil {
			return fmt.Errorf("host: log store: %w", err)
		}
		return nil
	}
	if len(v) != 1 || v[0] != storeFormat {
		return oerr.Errorf("host.open", oerr.InvalidArgument, "log store has format %x, expected %d", v, storeFormat)
	}
	return nil
}

// groups reads which replicas the drive has or had.
func (s *stores) groups() (map[ident.Group]identity, error) {
	out := make(map[ident.Group]identity)
	it, err := s.log.db.NewIter(&pebble.IterOptions{UpperBound: prefix(formatGroup, 0)})
	if err != nil {
		return nil, fmt.Errorf("host: log store: %w", err)
	}
	for ok := it.First(); ok; {
		k := it.Key()
		if len(k) < prefixLen {
			return nil, errors.Join(corrupt("log key", k, "group and kind"), it.Close())
		}
		g := ident.Group(uint32(k[0])<<24 | uint32(k[1])<<16 | uint32(k[2])<<8 | uint32(k[3]))
		if k[4] == logIdentity {
			id, err := decodeIdentity(it.Value())
			if err != nil {
				return nil, errors.Join(err, it.Close())
			}
			out[g] = id
		}
		ok = it.SeekGE(groupEnd(g))
	}
	return out, it.Close()
}

// create makes an empty or bootstrapped replica. The state comes first: what has no identity row does not exist yet.
func (s *stores) create(g ident.Group, id uint64, meta *appliedMeta) error {
	if err := s.state.put(g, meta); err != nil {
		return err
	}
	b := s.log.db.NewBatch()
	defer b.Close()
	err := errors.Join(
		b.DeleteRange(prefix(g, 0), groupEnd(g), nil),
		b.Set(prefix(g, logIdentity), identity{replica: id}.encode(), nil))
	if meta != nil {
		hs := hardState{term: meta.term, commit: meta.index}
		err = errors.Join(err, b.Set(prefix(g, logHard), hs.encode(nil), nil), b.Set(prefix(g, logTrunc), meta.entryID.encode(nil), nil))
	}
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("host: log store: %w", err)
	}
	return nil
}

// destroy removes a replica for ever. The mark comes first, so that a crash cannot bring it back half.
func (s *stores) destroy(g ident.Group, id uint64) error {
	b := s.log.db.NewBatch()
	defer b.Close()
	err := errors.Join(
		b.DeleteRange(prefix(g, 0), groupEnd(g), nil),
		b.Set(prefix(g, logIdentity), identity{replica: id, destroyed: true}.encode(), nil))
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("host: log store: %w", err)
	}
	return s.state.put(g, nil)
}

// close flushes the state, so that the next start has little to replay.
func (s *stores) close() error {
	var err error
	if s.state != nil {
		err = errors.Join(err, s.state.flush(), s.state.db.Close())
	}
	if s.log != nil {
		err = errors.Join(err, s.log.db.Close())
	}
	s.cache.Unref()
	return err
}

// pebbleLogger passes on what ends a store and drops the rest.
type pebbleLogger struct{ fatal func(error) }

func (pebbleLogger) Infof(string, ...any)  {}
func (pebbleLogger) Errorf(string, ...any) {}

// Fatalf is called when the WAL or the manifest could not be written. Pebble expects it not to return.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	// Pebble asks for stack traces; who reads this wants the cause, and errors.Is wants it wrapped.
	for _, a := range args {
		if err, ok := a.(error); ok {
			l.fatal(fmt.Errorf("pebble: %w", err))
			select {}
		}
	}
	text, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n") // the rest is a stack trace
	l.fatal(fmt.Errorf("pebble: %s", text))
	select {} // nothing may go on as if it had been written
}
