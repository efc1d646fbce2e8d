package gossip

import (
	"bytes"
	"context"
	"log/slog"
)

// logWriter turns memberlist's lines into slog records. It is quiet: a node that cannot be reached is an everyday thing
// here, and memberlist calls it an error; so its errors are warnings, its warnings information, the rest debug.
type logWriter struct{ to *slog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	if w.to == nil {
		return len(line), nil
	}
	text := bytes.TrimSpace(line)
	level := slog.LevelDebug
	for prefix, l := range map[string]slog.Level{"[ERR] ": slog.LevelWarn, "[WARN] ": slog.LevelInfo, "[INFO] ": slog.LevelDebug, "[DEBUG] ": slog.LevelDebug} {
		if rest, ok := bytes.CutPrefix(text, []byte(prefix)); ok {
			text, level = rest, l
			break
		}
	}
	w.to.Log(context.Background(), level, string(text), "component", "gossip")
	return len(line), nil
}
