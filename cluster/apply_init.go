package cluster

import (
	"encoding/hex"

	"objstore/internal/ident"
	"objstore/internal/oerr"
)

// Bounds of what OpInit carries, in bytes.
const (
	minAccessKey = 3
	maxAccessKey = 128
	minSecret    = 8
	maxSecret    = 256
	maxCABytes   = 16 << 10
)

func (s *State) applyInit(cmd *Command) CommandResult {
	switch {
	case !s.head.ClusterID.IsZero():
		return refuse(oerr.Exists, "init: the cluster is initialised already, its id is %s", s.head.ClusterID)
	case cmd.ClusterID.IsZero():
		return refuse(oerr.InvalidArgument, "init: no cluster id")
	case cmd.Format != FormatVersion:
		return refuse(oerr.InvalidArgument, "init: format %d, expected %d", cmd.Format, FormatVersion)
	case cmd.Expect < 1 || cmd.Expect > MaxNodes:
		return refuse(oerr.InvalidArgument, "init: %d expected nodes, need 1 to %d", cmd.Expect, MaxNodes)
	case len(cmd.AccessKey) < minAccessKey || len(cmd.AccessKey) > maxAccessKey || !printable(cmd.AccessKey):
		return refuse(oerr.InvalidArgument, "init: access key of %d bytes, need %d to %d printable characters", len(cmd.AccessKey), minAccessKey, maxAccessKey)
	case len(cmd.Secret) < minSecret || len(cmd.Secret) > maxSecret || !printable(cmd.Secret):
		return refuse(oerr.InvalidArgument, "init: secret of %d bytes, need %d to %d printable characters", len(cmd.Secret), minSecret, maxSecret)
	case len(cmd.CACert) == 0 || len(cmd.CACert) > maxCABytes || len(cmd.CAKey) == 0 || len(cmd.CAKey) > maxCABytes:
		return refuse(oerr.InvalidArgument, "init: CA certificate of %d and key of %d bytes, need 1 to %d", len(cmd.CACert), len(cmd.CAKey), maxCABytes)
	}
	if n := len(cmd.GossipKey); n != 16 && n != 24 && n != 32 {
		return refuse(oerr.InvalidArgument, "init: gossip key of %d bytes, need 16, 24 or 32", n)
	}
	s.setHead(header{Format: cmd.Format, ClusterID: cmd.ClusterID, Expect: cmd.Expect})
	s.secret = secretRow{CACert: cmd.CACert, CAKey: cmd.CAKey, GossipKey: cmd.GossipKey}
	s.put(keySecret, s.secret)
	s.putCredential(credentialRow{AccessKey: cmd.AccessKey, Secret: cmd.Secret, Root: true})
	s.putGroup(&Group{ID: 0})
	return CommandResult{}
}

// printable reports ASCII without spaces and control characters.
func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func (s *State) applyAddToken(cmd *Command) CommandResult {
	if raw, err := hex.DecodeString(cmd.Token); err != nil || len(raw) != 32 {
		return refuse(oerr.InvalidArgument, "add token: read %s, expected 64 hexadecimal digits of a SHA-256", quoteShort(cmd.Token))
	}
	if cmd.Expires <= cmd.Now {
		return refuse(oerr.InvalidArgument, "add token: expires at %d, now is %d", cmd.Expires, cmd.Now)
	}
	if _, ok := s.tokens[cmd.Token]; ok {
		return refuse(oerr.Exists, "add token: this token is known already")
	}
	live := 0
	for _, t := range s.tokens {
		if t.Expires > cmd.Now {
			live++
		}
	}
	if live >= MaxTokens {
		return refuse(oerr.Busy, "add token: %d unused tokens, at most %d are allowed", live, MaxTokens)
	}
	for _, hash := range sortedKeys(s.tokens) {
		if s.tokens[hash].Expires <= cmd.Now {
			s.dropToken(hash)
		}
	}
	t := tokenRow{Hash: cmd.Token, Expires: cmd.Expires}
	s.tokens[t.Hash] = t
	s.put(textKey(rowToken, t.Hash), t)
	return CommandResult{}
}

func (s *State) dropToken(hash string) {
	delete(s.tokens, hash)
	s.del(textKey(rowToken, hash))
}

func (s *State) applySetSetting(cmd *Command) CommandResult {
	names := sortedKeys(cmd.Settings)
	if len(names) == 0 {
		return refuse(oerr.InvalidArgument, "set setting: none given")
	}
	total := len(s.view.Setting)
	for _, name := range names {
		if !settingName(name) {
			return refuse(oerr.InvalidArgument, "set setting: name %s, expected 1 to %d of a-z, 0-9, '_' and '.'", quoteShort(name), MaxNameLen)
		}
		if n := len(cmd.Settings[name]); n > MaxSettingValue {
			return refuse(oerr.InvalidArgument, "set setting %s: value of %d bytes, at most %d are allowed", name, n, MaxSettingValue)
		}
		_, have := s.view.Setting[name]
		switch set := cmd.Settings[name] != ""; {
		case set && !have:
			total++
		case !set && have:
			total--
		}
	}
	if total > MaxSettings {
		return refuse(oerr.InvalidArgument, "set setting: that would make %d settings, at most %d are allowed", total, MaxSettings)
	}
	s.own(partSettings)
	for _, name := range names {
		if value := cmd.Settings[name]; value != "" {
			s.view.Setting[name] = value
			s.put(textKey(rowSetting, name), value)
		} else {
			delete(s.view.Setting, name)
			s.del(textKey(rowSetting, name))
		}
	}
	return CommandResult{}
}

func settingName(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; !alnum(c) && c != '_' && c != '.' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= MaxNameLen
}

// nextID returns the next number of a sequence that never goes back.
func nextID[T ident.Node | ident.Drive](last T) T { return last + 1 }
