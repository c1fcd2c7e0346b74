package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Options sets up a Cache. The zero value of each field is its default.
type Options struct {
	// Prefix stands before each key in the store, and keeps caches apart that share
	// a server: a cache sees only keys of its prefix. In a cluster, a prefix with a
	// hash tag, such as "{embedonce}:", puts every entry into one slot, which makes
	// batches atomic and leaves the whole cache to one node. At most 128 bytes; "" is
	// "embedonce:".
	Prefix string
	// TTL is how long an entry lives after it was written, at least one second; 0 is
	// for ever. Reading doesn't prolong it.
	TTL time.Duration
	// TTLJitter is added to TTL in part, another part for each entry, so that entries
	// that were written together don't expire together. 0 is a tenth of TTL, a
	// negative one is none.
	TTLJitter time.Duration
	// Timeout is how long a call waits for one answer of the server. A second is added
	// for each chunk of a read, and for each 4 MiB of a batch, an entry counting as 1 KiB
	// more than its value. A context that ends earlier ends the wait with its own error; Timeout ends it with
	// backend.ErrUnavailable. 10 ms to 24 hours; 0 is 5 seconds.
	Timeout time.Duration
	// Connections is how many requests of this cache are under way at once, each on a
	// connection of its own; more wait for their turn. 0 is 16.
	Connections int
	// ReadAhead is how many chunks of one GetMany are asked for at once. 0 is 2 for a
	// server that answers within 0.3 ms, and else 8; docs/backends.md has the
	// measurements.
	ReadAhead int
	// ChunkKeys is how many keys a chunk of a read has at most, 1 to 4,096; where values
	// are long, it has fewer. 0 is 128; docs/backends.md has the measurements.
	ChunkKeys int
	// WaitReplicas is how many replicas must have a batch before it is acknowledged
	// (the command WAIT); a batch that fewer have after half of Timeout ends with
	// backend.ErrUnavailable. 0 is none: a failing master may take batches with it that
	// it had acknowledged.
	WaitReplicas int
	// TLS replaces the settings for rediss:// URLs: for a private authority, or for a
	// client's certificate. nil verifies the server against the system's authorities.
	// Only for Open.
	TLS *tls.Config
}

const (
	defaultPrefix      = "embedonce:"
	defaultTimeout     = 5 * time.Second
	defaultConnections = 16
	defaultChunkKeys   = 128
	maxPrefix          = 128
	maxConnections     = 1024
	maxChunkKeys       = 4096
	shortestTimeout    = 10 * time.Millisecond
	longestTimeout     = 24 * time.Hour
	longestTTL         = 100 * 365 * 24 * time.Hour
)

// withDefaults returns a copy of o, which may be nil, with every default filled in,
// or one error that lists all that is wrong.
func (o *Options) withDefaults() (Options, error) {
	var full Options
	if o != nil {
		full = *o
	}
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	between := func(name string, n, most int) {
		if n < 0 || n > most {
			wrong("Options.%s is %d; 0 to %d are allowed", name, n, most)
		}
	}
	if len(full.Prefix) > maxPrefix {
		wrong("Options.Prefix has %d bytes; at most %d are allowed", len(full.Prefix), maxPrefix)
	}
	if full.TTL != 0 && (full.TTL < time.Second || full.TTL > longestTTL) {
		wrong("Options.TTL is %v; 0, and 1s to %v are allowed", full.TTL, longestTTL)
	}
	if full.TTLJitter > 0 && full.TTL == 0 {
		wrong("Options.TTLJitter is %v without a TTL; 0 is allowed", full.TTLJitter)
	}
	if full.TTLJitter > longestTTL {
		wrong("Options.TTLJitter is %v; at most %v is allowed", full.TTLJitter, longestTTL)
	}
	if full.Timeout != 0 && (full.Timeout < shortestTimeout || full.Timeout > longestTimeout) {
		wrong("Options.Timeout is %v; 0, and %v to %v are allowed", full.Timeout, shortestTimeout, longestTimeout)
	}
	between("Connections", full.Connections, maxConnections)
	between("ReadAhead", full.ReadAhead, maxConnections)
	between("ChunkKeys", full.ChunkKeys, maxChunkKeys)
	between("WaitReplicas", full.WaitReplicas, 64)
	if err := errors.Join(problems...); err != nil {
		return full, err
	}

	setDefault(&full.Prefix, defaultPrefix)
	setDefault(&full.Timeout, defaultTimeout)
	setDefault(&full.Connections, defaultConnections)
	setDefault(&full.ChunkKeys, defaultChunkKeys)
	if full.TTLJitter == 0 {
		full.TTLJitter = full.TTL / 10
	}
	full.TTLJitter = max(full.TTLJitter, 0)
	return full, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// hasHashTag says whether a cluster keeps all keys with this prefix in one slot.
func hasHashTag(prefix string) bool {
	_, after, opened := strings.Cut(prefix, "{")
	return opened && strings.IndexByte(after, '}') > 0
}

// escaped returns prefix as a pattern that matches nothing else.
func escaped(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(prefix)
}
