package gossip

import (
	"bytes"
	"context"
	"log/slog"
)

// logWriter turns memberlist's lines into slog records. It is quiet: a node that cannot be reached is an everyday thing
// here, and memberlist calls it an error; so its errors are warnings, its warnings information, the rest debug.
type logWriter struct {
	to      *slog.Logger
	refused func() // hears of what did not come from a member; may be nil
}

// strange are the words with which memberlist says that it dropped a packet or stream of somebody who is no member: a
// foreign or broken label, no ciphertext of ours, no message. It has no other way of saying so.
func strange(line []byte) bool {
	for _, words := range []string{"label", "Decrypt packet failed", "failed to receive: "} {
		if bytes.Contains(line, []byte(words)) {
			return true
		}
	}
	return false
}

func (w logWriter) Write(line []byte) (int, error) {
	if w.refused != nil && bytes.HasPrefix(line, []byte("[ERR] ")) && strange(line) {
		w.refused()
	}
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
